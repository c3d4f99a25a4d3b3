// These checks see what can be seen without opening a library.
#include <elf.h>

#include "check/checks.h"
#include "registry/elf_note.h"
#include "registry/kinds.h"
#include "registry/trust.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

void note(const Subject& s) {
  if (const std::string problem = compatibility_problem(s.note); !problem.empty()) fail_check(problem);
}

void symbol(const Subject& s) {
  for (const ElfSymbol& symbol : ElfFile(s.library).dynamic_symbols()) {
    if (symbol.defined && symbol.name == TENON_PLUGIN_SYMBOL) return;
  }
  fail_check("does not export " TENON_PLUGIN_SYMBOL);
}

void exports(const Subject& s) {
  std::string others;
  for (const ElfSymbol& symbol : ElfFile(s.library).dynamic_symbols()) {
    if (!symbol.defined || symbol.name.empty() || symbol.name == TENON_PLUGIN_SYMBOL) continue;
    others += (others.empty() ? "" : ", ") + symbol.name;
  }
  if (!others.empty()) fail_check("exports more than " TENON_PLUGIN_SYMBOL ": " + others + "; use a version script");
}

void unique(const Subject& s) {
  for (const ElfSymbol& symbol : ElfFile(s.library).dynamic_symbols()) {
    if (symbol.binding == STB_GNU_UNIQUE) {
      fail_check("has the process-wide unique symbol " + symbol.name + "; compile with -fno-gnu-unique");
    }
  }
}

// A library is looked for beside the plugin first; after that it may be looked
// for elsewhere, such as in the CUDA toolkit.
void run_paths(const Subject& s) {
  for (const std::string& paths : ElfFile(s.library).dynamic().run_paths) {
    if (paths.empty() || paths.starts_with("$ORIGIN") || paths.starts_with("${ORIGIN}")) continue;
    fail_check("looks for its libraries in " + paths.substr(0, paths.find(':')) +
               "; a run path should begin with $ORIGIN");
  }
}

void trust(const Subject& s) {
  for (const std::filesystem::path& place : {s.library, s.library.parent_path()}) {
    if (const std::string problem = trust_problem(place); !problem.empty()) fail_check(problem);
  }
}

}  // namespace

void fail_check(const std::string& why) {
  throw Error(ErrorCode::kPlugin, why);
}

const std::vector<Check>& file_checks() {
  static const std::vector<Check> kChecks = {
      {"binary.symbol", {}, &symbol},      {"binary.exports", {}, &exports}, {"binary.unique_symbols", {}, &unique},
      {"binary.run_path", {}, &run_paths}, {"descriptor.note", {}, &note},   {"loading.trust", {}, &trust}};
  return kChecks;
}

}  // namespace tenon
