// This collects everything that is wrong with a configuration.
#pragma once

#include <string>
#include <vector>

#include "sections.h"
#include "tenon/core/error.h"
#include "tenon/core/params.h"
#include "tree.h"

namespace tenon::config {

class Findings {
 public:
  void add(const SourcePosition& where, std::string message);
  // Adds those of the error; the ones without a position get `where`.
  void add(const Error& error, const SourcePosition& where);

  // Throws Error(kConfig), if there is anything, in order of position: by source, as listed, then by line. The first
  // hundred are listed, the rest counted.
  void throw_if_any(const std::vector<std::string>& sources);

 private:
  std::vector<Diagnostic> all_;
};

// Returns '; did you mean "x"?', or "" if nothing comes close.
std::string suggestion(const std::string& word, const std::vector<std::string>& known);
// Returns '"a", "b" and "c"'.
std::string listed(const std::vector<std::string>& names);

// Sets parameter i from a node, or reports what was found and what would be right. label: "quantization.none".
void set_param(ParamValues& values, size_t i, const Node& node, const std::string& label, Findings& findings);

// These are the keys that a table takes.
struct KnownKeys {
  std::vector<const tenon_param_schema*> schemas;
  const std::vector<StructuredKey>& structured;
};
// Reports a key that the table does not take, with the nearest that it does.
void report_unknown_key(const std::string& key, const Node& node, const std::string& label, const KnownKeys& known,
                        Findings& findings);

}  // namespace tenon::config
