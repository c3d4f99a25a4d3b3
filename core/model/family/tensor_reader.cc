#include "tensor_reader.h"

namespace tenon::family {
namespace {

using config::Node;

constexpr const char* kNeededTensors[] = {"embedding", "lm_head"};

struct StackedReader {
  config::Findings& findings;
  const Family& family;
  const char* convention;

  StackedTensors read(const std::string& name, const Node& node) const {
    StackedTensors s;
    s.name = name;
    Fields of(node, "stacked." + std::string(convention) + "." + config::quote(name), findings);
    s.parts = of.texts("parts");
    if (const Node* tensors = of.need("tensors")) {
      Fields ends(*tensors, of.label() + ".tensors", findings);
      for (const auto& [end, of_part] : ends.in_order()) {
        if (of_part->text() == nullptr) ends.wrong(*of_part, end, "the end of the name of an expert's tensor");
        if (of_part->text() != nullptr) s.tensors[end] = *of_part->text();
      }
    }
    s.transposed = of.texts("transposed");
    for (const std::string& end : s.transposed) {
      const bool known =
          std::any_of(s.tensors.begin(), s.tensors.end(), [&](const auto& t) { return t.second == end; });
      if (!known) of.problem(node.where, "transposed names " + config::quote(end) + ", which tensors does not have");
    }
    if (std::count(name.begin(), name.end(), '*') != 1) {
      of.problem(node.where, "expected one \"*\" in the name, for the layer's number");
    }
    const std::vector<std::string> none = {""};
    for (const std::string& part : s.parts.empty() ? none : s.parts) {
      const std::string wanted = name + ".*" + (part.empty() ? "" : "." + part);
      const bool named = std::any_of(family.tensors.begin(), family.tensors.end(),
                                     [&](const TensorNames& t) { return t.file.in(convention) == wanted; });
      if (!named)
        of.problem(node.where, "needs a tensor called " + config::quote(wanted) + ", which [tensors] does not have");
    }
    of.finish();
    return s;
  }
};

}  // namespace

void read_tensors(const Node& node, config::Findings& findings, Family& family) {
  Fields fields(node, "tensors", findings);
  for (const auto& [name, entry] : fields.in_order()) {
    Fields of(*entry, "tensors." + name, findings);
    TensorNames t;
    t.name = name;
    t.file = {of.text("huggingface"), of.text("gguf")};
    t.plus_one = truths(of, of.find("plus_one"), "plus_one", findings);
    t.bare = truths(of, of.find("bare"), "bare", findings);
    for (const char* convention : kConventions) {
      const std::string& file = t.file.in(convention);
      const bool starred = file.find('*') != std::string::npos;
      if (file.empty()) continue;
      if (starred && name.starts_with(kLayers) &&
          std::count(file.begin(), file.end(), '*') != std::count(name.begin(), name.end(), '*')) {
        of.problem(entry->where, "each \"*\" of the name, for a layer's number and for an expert's, stands here, too");
      }
      if (starred == name.starts_with(kLayers)) continue;
      of.problem(entry->where, starred ? "\"*\" stands for a layer's number, so the name must begin with \"layers.*.\""
                                       : "the name of a layer's tensor has a \"*\" for the layer's number");
    }
    of.finish();
    family.tensors.push_back(std::move(t));
  }
  for (const char* needed : kNeededTensors) {
    if (family.tensor(needed) == nullptr) fields.need(needed);
  }
}

void read_stacked(const Node& node, config::Findings& findings, Family& family) {
  Fields fields(node, "stacked", findings);
  for (const char* convention : kConventions) {
    const Node* names = fields.find(convention);
    if (names == nullptr) continue;
    Fields of(*names, std::string("stacked.") + convention, findings);
    for (const auto& [name, entry] : of.in_order()) {
      family.stacked.in(convention).push_back(StackedReader{findings, family, convention}.read(name, *entry));
    }
  }
  fields.finish();
}

}  // namespace tenon::family
