// This collects the mistakes in a configuration and throws them together, each with what would be right. They are
// sorted by the order of the sources, then by line and column, and all of one place keep their order; of very many only
// the first are listed. A suggestion is the nearest known name, if one is near enough.
#include "findings.h"

#include <algorithm>
#include <optional>
#include <tuple>

namespace tenon::config {
namespace {

constexpr size_t kMostListed = 100;

struct AsParam {
  std::optional<ParamValue> operator()(const Date&) const { return std::nullopt; }
  std::optional<ParamValue> operator()(const Array&) const { return std::nullopt; }
  std::optional<ParamValue> operator()(const Table&) const { return std::nullopt; }
  template <class T>
  std::optional<ParamValue> operator()(const T& plain) const {
    return plain;
  }
};

bool is_of_type(const tenon_param_spec& spec, const ParamValue& value) {
  switch (spec.type) {
    case TENON_PARAM_BOOL:
      return std::holds_alternative<bool>(value);
    case TENON_PARAM_INT:
      return std::holds_alternative<int64_t>(value);
    case TENON_PARAM_REAL:
      return std::holds_alternative<double>(value) || std::holds_alternative<int64_t>(value);
    default:
      return std::holds_alternative<std::string>(value);
  }
}

}  // namespace

void Findings::add(const SourcePosition& where, std::string message) {
  all_.push_back({where, std::move(message)});
}

void Findings::add(const Error& error, const SourcePosition& where) {
  for (const Diagnostic& d : error.diagnostics()) all_.push_back({d.where.file.empty() ? where : d.where, d.message});
}

void Findings::throw_if_any(const std::vector<std::string>& sources) {
  if (all_.empty()) return;
  const auto rank = [&](const Diagnostic& d) {
    const auto source = std::find(sources.begin(), sources.end(), d.where.file);
    return std::tuple(source - sources.begin(), d.where.line, d.where.column);
  };
  std::stable_sort(all_.begin(), all_.end(),
                   [&](const Diagnostic& a, const Diagnostic& b) { return rank(a) < rank(b); });
  if (const size_t n = all_.size(); n > kMostListed) {
    all_.resize(kMostListed);
    add(SourcePosition{all_.back().where.file}, std::to_string(n - kMostListed) + " more errors");
  }
  throw Error(ErrorCode::kConfig, std::move(all_));
}

std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  const std::string nearest = nearest_name(word.substr(0, 80), known);
  return nearest.empty() ? "" : "; did you mean " + quote(nearest) + "?";
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 < names.size() ? ", " : " and ";
    text += quote(names[i]);
  }
  return text;
}

void set_param(ParamValues& values, size_t i, const Node& node, const std::string& label, Findings& findings) {
  const tenon_param_spec spec = spec_at(values.schema(), i);
  const std::optional<ParamValue> plain = std::visit(AsParam{}, node.value);
  const std::string problem = plain ? values.set(i, *plain) : "no plain value";
  if (problem.empty()) return;
  std::string message = label + "." + spec.name + ": found " + describe_found(node) + ", expected " + describe(spec);
  if (plain && is_of_type(spec, *plain)) {
    if (const std::string* text = node.text()) message += suggestion(*text, choices_of(spec));
    if (range_text(spec).empty()) message += "; " + problem;
  }
  findings.add(node.where, std::move(message));
}

void report_unknown_key(const std::string& key, const Node& node, const std::string& label, const KnownKeys& known,
                        Findings& findings) {
  std::vector<std::string> names, forms;
  for (const tenon_param_schema* schema : known.schemas) {
    for (size_t i = 0; i < schema->count; ++i) {
      names.emplace_back(schema->spec[i]->name);
      forms.push_back(describe(spec_at(*schema, i)));
    }
  }
  for (const StructuredKey& s : known.structured) {
    names.emplace_back(s.name);
    forms.emplace_back(s.form);
  }
  std::string message = label + ": unknown key " + quote(key);
  const std::string nearest = nearest_name(key.substr(0, 80), names);
  if (!nearest.empty()) {
    const auto i = static_cast<size_t>(std::find(names.begin(), names.end(), nearest) - names.begin());
    message += "; did you mean \"" + nearest + "\" (" + forms[i] + ")?";
  } else {
    message += "; it takes " + listed(names);
  }
  findings.add(node.key_where, std::move(message));
}

}  // namespace tenon::config
