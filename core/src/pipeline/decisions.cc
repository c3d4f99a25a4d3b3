#include "decisions.h"

#include <algorithm>
#include <cctype>

namespace tenon {
namespace {

// It makes 12 of "layers.12.mlp", and -1 for what is in no layer.
int layer_of(const std::string& path) {
  const size_t at = without_layer(path).find('*');
  return at == std::string::npos ? -1 : std::stoi(path.substr(at));
}

// It makes "0-2,5" of {0, 1, 2, 5}.
std::string ranges_of(std::vector<int> layers) {
  std::sort(layers.begin(), layers.end());
  std::string text;
  for (size_t i = 0, end = 0; i < layers.size(); i = end) {
    for (end = i + 1; end < layers.size() && layers[end] <= layers[end - 1] + 1;) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(layers[i]);
    if (layers[end - 1] > layers[i]) text += "-" + std::to_string(layers[end - 1]);
  }
  return text;
}

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

}  // namespace

std::string without_layer(const std::string& path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    if (!is_digit(path[i]) || i == 0 || path[i - 1] != '.') {
      out += path[i];
      continue;
    }
    out += '*';
    while (i + 1 < path.size() && is_digit(path[i + 1])) ++i;
  }
  return out;
}

void DecisionLog::note(const std::string& path, const std::string& text) {
  const std::string gathered = name_ + without_layer(path);
  auto known = std::find_if(noted_.begin(), noted_.end(),
                            [&](const Noted& n) { return n.decision.path == gathered && n.decision.text == text; });
  if (known == noted_.end()) known = noted_.insert(known, Noted{.decision = {gathered, text, 0}, .layers = {}});
  ++known->decision.count;
  if (const int layer = layer_of(path); layer >= 0) known->layers.push_back(layer);
}

bool DecisionLog::has_rival(const Noted& noted) const {
  return std::any_of(noted_.begin(), noted_.end(), [&](const Noted& n) {
    return n.decision.path == noted.decision.path && n.layers != noted.layers;
  });
}

std::vector<Decision> DecisionLog::decisions() const {
  std::vector<Decision> all;
  for (const Noted& noted : noted_) {
    Decision& d = all.emplace_back(noted.decision);
    if (noted.layers.empty() || !has_rival(noted)) continue;
    d.path.replace(d.path.find('*', name_.size()), 1, ranges_of(noted.layers));
  }
  return all;
}

}  // namespace tenon
