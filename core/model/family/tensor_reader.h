// This reads the parts of a family file that name tensors, and values that the two conventions may have differently.
#pragma once

#include "family.h"
#include "fields.h"

namespace tenon::family {

inline constexpr const char* kConventions[] = {"huggingface", "gguf"};

// Reads one value for both conventions, or a table with one for each.
template <class T, class Read>
ByConvention<T> by_convention(const config::Node& node, const std::string& label, config::Findings& findings,
                              const Read& read) {
  ByConvention<T> all;
  if (node.table() == nullptr) {
    all.huggingface = all.gguf = read(node, label);
    return all;
  }
  Fields fields(node, label, findings);
  for (const char* convention : kConventions) {
    if (const config::Node* one = fields.find(convention)) all.in(convention) = read(*one, label + "." + convention);
  }
  fields.finish();
  return all;
}

// Reads true or false, for both conventions or by convention. node: nullptr stands for false.
inline ByConvention<bool> truths(Fields& of, const config::Node* node, const std::string& key,
                                 config::Findings& findings) {
  if (node == nullptr) return {};
  return by_convention<bool>(*node, of.label() + "." + key, findings, [&](const config::Node& n, const std::string&) {
    const bool* truth = std::get_if<bool>(&n.value);
    if (truth == nullptr) of.wrong(n, key, "true or false");
    return truth != nullptr && *truth;
  });
}

// Reads [tensors] into the family.
void read_tensors(const config::Node& node, config::Findings& findings, Family& family);
// Reads [stacked] into the family, whose tensors were read.
void read_stacked(const config::Node& node, config::Findings& findings, Family& family);

}  // namespace tenon::family
