// This reads one table of a family file: its keys by name and type. What is wrong goes to the findings; a key that
// nobody asked for is an error that names the nearest one that was.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../../src/config/findings.h"
#include "../../src/config/tree.h"

namespace tenon::family {

class Fields {
 public:
  // label: the table's name in messages. A node that is no table is reported, and counts as an empty one.
  Fields(const config::Node& node, std::string label, config::Findings& findings)
      : node_(node), label_(std::move(label)), findings_(findings) {
    if (node.table() == nullptr) wrong(node, "", "a table");
  }

  const std::string& label() const { return label_; }
  const SourcePosition& where() const { return node_.where; }
  // Returns nullptr if the table has no such key.
  const config::Node* find(const std::string& key) {
    asked_.push_back(key);
    const config::Table* table = node_.table();
    if (table == nullptr) return nullptr;
    const auto found = table->find(key);
    return found == table->end() ? nullptr : &found->second;
  }
  const config::Node* need(const std::string& key) {
    const config::Node* found = find(key);
    if (found == nullptr && node_.table() != nullptr)
      findings_.add(where(), label_ + ": key \"" + key + "\" is missing");
    return found;
  }
  std::string text(const std::string& key) { return as_text(find(key), key); }
  std::string needed_text(const std::string& key) { return as_text(need(key), key); }
  bool boolean(const std::string& key, bool fallback) {
    const config::Node* node = find(key);
    if (node == nullptr) return fallback;
    if (const bool* value = std::get_if<bool>(&node->value)) return *value;
    wrong(*node, key, "true or false");
    return fallback;
  }
  std::vector<std::string> texts(const std::string& key) {
    std::vector<std::string> all;
    const config::Node* node = find(key);
    if (node == nullptr) return all;
    if (node->array() == nullptr) wrong(*node, key, "an array of strings");
    for (const config::Node& each : node->array() == nullptr ? config::Array() : *node->array()) {
      if (each.text() != nullptr) all.push_back(*each.text());
      if (each.text() == nullptr) wrong(each, key, "a string");
    }
    return all;
  }
  // Returns the entries of the table in the order of the file; all of its keys count as asked for.
  std::vector<std::pair<std::string, const config::Node*>> in_order() {
    std::vector<std::pair<std::string, const config::Node*>> all;
    if (node_.table() == nullptr) return all;
    for (const auto& [key, node] : *node_.table()) {
      all.emplace_back(key, &node);
      asked_.push_back(key);
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      const SourcePosition &x = a.second->key_where, &y = b.second->key_where;
      return std::pair(x.line, x.column) < std::pair(y.line, y.column);
    });
    return all;
  }
  void wrong(const config::Node& node, const std::string& key, const std::string& expected) {
    findings_.add(node.where, label_ + (key.empty() ? "" : "." + key) + ": found " + config::describe_found(node) +
                                  ", expected " + expected);
  }
  void problem(const SourcePosition& at, const std::string& message) { findings_.add(at, label_ + ": " + message); }
  // Reports keys that the table may not have. It is called once all that it may have were asked for.
  void finish() {
    if (node_.table() == nullptr) return;
    for (const auto& [key, node] : *node_.table()) {
      if (std::find(asked_.begin(), asked_.end(), key) != asked_.end()) continue;
      const std::string nearest = config::suggestion(key, asked_);
      findings_.add(node.key_where, label_ + ": unknown key " + config::quote(key) +
                                        (nearest.empty() ? "; it takes " + config::listed(asked_) : nearest));
    }
  }

 private:
  std::string as_text(const config::Node* node, const std::string& key) {
    if (node == nullptr) return "";
    if (node->text() != nullptr && !node->text()->empty()) return *node->text();
    wrong(*node, key, "a string");
    return "";
  }

  const config::Node& node_;
  std::string label_;
  config::Findings& findings_;
  std::vector<std::string> asked_;
};

}  // namespace tenon::family
