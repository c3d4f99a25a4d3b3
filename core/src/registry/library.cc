// Looks at a plugin's library without opening it, opens it, and checks that its table says what its note says. A
// library that was opened for use is never closed.
#include "registry/library.h"

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>

#include "fault.h"
#include "registry/elf_note.h"
#include "registry/kinds.h"
#include "registry/trust.h"
#include "tenon/core/error.h"
#include "tenon/core/params.h"
#include "tenon/sdk/error.h"

namespace tenon {
namespace {

[[noreturn]] void fail(const std::string& library, const std::string& why) {
  throw Error(ErrorCode::kPlugin, library + ": " + why);
}

const char* or_empty(const char* text) {
  return text == nullptr ? "" : text;
}

bool describes(const tenon_note& note, const tenon_component& c) {
  return std::strcmp(or_empty(c.kind), note.kind) == 0 && std::strcmp(or_empty(c.name), note.name) == 0 &&
         std::strcmp(or_empty(c.device), note.device) == 0;
}

// Boost wraps the loader's words in its own and in an errno that has nothing to do with them.
std::string loaders_words(const std::string& what) {
  constexpr std::string_view kBefore = "dlerror system message: ";
  const size_t begin = what.find(kBefore), end = what.rfind("): ");
  if (begin == std::string::npos || end == std::string::npos) return what;
  return what.substr(begin + kBefore.size(), end - begin - kBefore.size());
}

// Memory comes with an instance; all that init can do through its host is say something.
tenon_status no_memory_yet(void*, uint32_t, uint64_t, const char*, void**, tenon_reason* why) {
  sdk::fill_reason(why, "memory is there from create on, not during init");
  return TENON_REFUSED;
}
void release_nothing(void*, void*) {}
// C calls this: without memory the message is lost, which harms nothing.
void keep_message(void* messages, uint32_t, const char* message) noexcept {
  try {
    static_cast<std::vector<std::string>*>(messages)->emplace_back(message);
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

tenon_note examine_library(const std::filesystem::path& canonical, const std::vector<std::filesystem::path>& folders) {
  const std::string name = canonical.string();
  try {
    const std::optional<tenon_note> note = read_note(ElfFile(canonical));
    if (!note) fail(name, "is no Tenon plugin: it has no note of that name");
    std::vector<std::filesystem::path> places = {canonical, canonical.parent_path()};
    places.insert(places.end(), folders.begin(), folders.end());
    for (const std::filesystem::path& place : places) {
      if (const std::string problem = trust_problem(place); !problem.empty()) fail(name, "is not trusted: " + problem);
    }
    if (const std::string problem = compatibility_problem(*note); !problem.empty()) fail(name, problem);
    return *note;
  } catch (const Error& e) {
    const std::string& why = e.diagnostics().front().message;
    if (why.starts_with(name)) throw;
    throw Error(e.code(), name + ": " + why);
  }
}

// The loader takes a failed allocation for a missing file; what is wrong with the library itself is found again.
void Library::load(const std::filesystem::path& canonical) {
  constexpr auto kMode = boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local;
  try {
    library_.load(canonical, kMode);
  } catch (const std::exception&) {
    library_.load(canonical, kMode);
  }
}

Library::Library(const std::filesystem::path& canonical, const tenon_note& note) {
  const std::string name = canonical.string();
  namespace dll = boost::dll;
  const tenon_plugin* table = nullptr;
  const fault::InComponent in(canonical.c_str(), "loading it");
  errno = 0;
  try {
    load(canonical);
    table = &library_.get<const tenon_plugin>(TENON_PLUGIN_SYMBOL);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    if (errno == ENOMEM) throw std::bad_alloc();  // the loader does not say so
    fail(name, std::string(library_.is_loaded() ? "does not export " TENON_PLUGIN_SYMBOL ": " : "does not load: ") +
                   loaders_words(e.what()));
  }
  if (table->h.size < offsetof(tenon_plugin, init) || table->h.major != TENON_ABI_MAJOR) {
    fail(name, "its table " TENON_PLUGIN_SYMBOL " is of another version than its note");
  }
  plugin_ = sdk::read_abi(table);
  check_component(note, name);
  initialize(name);
}

void Library::check_component(const tenon_note& note, const std::string& name) {
  const tenon_component* found = nullptr;
  std::string others;
  for (uint32_t i = 0; plugin_.component != nullptr && i < plugin_.n_components; ++i) {
    const tenon_component* c = plugin_.component[i];
    if (c == nullptr || c->h.size < sizeof(tenon_component)) fail(name, "its table of components is damaged");
    if (describes(note, *c)) found = c;
    others += std::string(others.empty() ? "" : ", ") + or_empty(c->kind) + '/' + or_empty(c->name) + " for " +
              or_empty(c->device);
  }
  if (found == nullptr) {
    fail(name, std::string("its note says ") + note.kind + '/' + note.name + " for " + note.device +
                   ", its table says " + (others.empty() ? "nothing" : others));
  }
  component_ = sdk::read_abi(found);
  for (const auto& [function, there] : {std::pair{"create", component_.create != nullptr},
                                        {"destroy", component_.destroy != nullptr},
                                        {"interface", component_.interface != nullptr}}) {
    if (!there) fail(name, std::string("its component has no function \"") + function + '"');
  }
  static constexpr tenon_param_schema kNoParameters = {{sizeof(tenon_param_schema), 1, 0}, 0, 0, nullptr};
  if (component_.schema == nullptr) component_.schema = &kNoParameters;
  const std::vector<std::string> problems = schema_problems(*component_.schema);
  if (!problems.empty()) fail(name, "its parameter schema is wrong: " + problems.front());
  if (const std::string hash = schema_hash(*component_.schema);
      note.schema_hash[0] != '\0' && hash != note.schema_hash) {
    fail(name, "its parameters (schema " + hash + ") are not those that its note promises (schema " + note.schema_hash +
                   "): rebuild it");
  }
}

void Library::initialize(const std::string& name) {
  if (plugin_.init == nullptr) return;
  host_ = sdk::abi_struct<tenon_host>();
  host_.ctx = &messages_;
  host_.alloc = &no_memory_yet;
  host_.release = &release_nothing;
  host_.log = &keep_message;
  char text[512] = "";
  tenon_reason why{text, sizeof(text)};
  tenon_status status = TENON_ERROR;
  try {
    status = plugin_.init(&host_, &why);
  } catch (...) {
    fail(name, "init let an exception out");
  }
  if (status != TENON_OK) fail(name, std::string("init failed: ") + text);
}

std::string library_schema_hash(const std::filesystem::path& library) {
  std::error_code missing;
  const std::filesystem::path canonical = std::filesystem::canonical(library, missing);
  if (missing) fail(library.string(), missing.message());
  tenon_note note = examine_library(canonical, {});
  note.schema_hash[0] = '\0';
  return schema_hash(*open_library(canonical, note).component().schema);
}

const Library& open_library(const std::filesystem::path& canonical, const tenon_note& note) {
  // The list belongs to the process, as the loader's own does. It is never destroyed, so
  // that no library is unloaded at exit either.
  static std::mutex mutex;
  static auto* const kOpen = new std::map<std::filesystem::path, std::unique_ptr<const Library>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<const Library>& entry = (*kOpen)[canonical];
  if (entry == nullptr) entry = std::make_unique<const Library>(canonical, note);
  return *entry;
}

}  // namespace tenon
