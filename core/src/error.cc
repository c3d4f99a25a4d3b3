#include "tenon/core/error.h"

#include <algorithm>
#include <numeric>

namespace tenon {
namespace {

std::string join(const std::vector<Diagnostic>& diagnostics) {
  std::string text;
  for (const Diagnostic& d : diagnostics) {
    if (!text.empty()) text += '\n';
    text += to_string(d);
  }
  return text;
}

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substitute, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string to_string(const Diagnostic& d) {
  std::string text;
  if (!d.where.file.empty()) {
    text += d.where.file + ':';
    if (d.where.line > 0) text += std::to_string(d.where.line) + ':';
    if (d.where.line > 0 && d.where.column > 0) text += std::to_string(d.where.column) + ':';
    text += ' ';
  }
  return text + "error: " + d.message;
}

Error::Error(ErrorCode code, std::vector<Diagnostic> diagnostics)
    : std::runtime_error(join(diagnostics)), code_(code), diagnostics_(std::move(diagnostics)) {}

Error::Error(ErrorCode code, SourcePosition where, std::string message)
    : Error(code, {Diagnostic{std::move(where), std::move(message)}}) {}

Error::Error(ErrorCode code, std::string message) : Error(code, SourcePosition{}, std::move(message)) {}

std::string nearest_name(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace tenon
