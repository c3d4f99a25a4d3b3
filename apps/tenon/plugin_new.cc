// `tenon plugin new` writes the smallest plugin of a kind, under a name of one's own, as a project that builds against
// the installed Tenon. All text comes from the installed templates (sdk/template in the source tree):
//   <kind>/<template>.cc, .cu   the component in C++, and for CUDA; c/<kind>/<template>.c in C
//   <kind>/pipeline.toml        the part of a pipeline that uses it, where `[kind] use = "name"` is not it
//   project/                    what every project has
// Copying replaces the template's name, as a text, after its kind, and as the name of the class, and @KEY@ in
// project/.
#include "plugin_new.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "output_path.h"

namespace tenon::app {
namespace {

namespace fs = std::filesystem;

struct Args {
  std::string kind, name, folder;
  bool c = false, cuda = false, force = false;
};
using Replacements = std::map<std::string, std::string>;

fs::path installed_at() {
  return fs::canonical("/proc/self/exe").parent_path().parent_path();
}

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw Error(ErrorCode::kIo, path.string() + ": cannot be read; is Tenon installed as a whole?");
  return text.str();
}

void write(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file)
    throw Error(ErrorCode::kIo, {path.string(), 0, 0}, std::string("cannot be written: ") + std::strerror(errno));
}

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Only whole words are replaced: "Ban" is not in "Band".
std::string replaced(std::string text, const Replacements& replacements) {
  for (const auto& [from, to] : replacements) {
    size_t at = 0;
    while ((at = text.find(from, at)) != std::string::npos) {
      const size_t end = at + from.size();
      const bool cut = (at > 0 && in_word(text[at - 1]) && in_word(from.front())) ||
                       (end < text.size() && in_word(text[end]) && in_word(from.back()));
      if (!cut) text.replace(at, from.size(), to);
      at += cut ? 1 : to.size();
    }
  }
  return text;
}

// Makes "TopNSigma" of "acme.top_n_sigma".
std::string class_of(const std::string& name) {
  std::string out;
  bool up = true;
  for (const char c : name.substr(name.rfind('.') + 1)) {
    if (c != '_') out += up ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    up = c == '_';
  }
  return out;
}

// Returns the only file of the folder with that ending.
std::optional<fs::path> source_in(const fs::path& folder, const char* ending) {
  std::error_code missing;
  for (const fs::directory_entry& e : fs::directory_iterator(folder, missing)) {
    if (e.path().extension() == ending) return e.path();
  }
  return std::nullopt;
}

fs::path template_for(const fs::path& templates, const Args& args) {
  const fs::path folder = args.c ? templates / "c" : templates;
  const char* const ending = args.c ? ".c" : ".cc";
  if (const auto found = source_in(folder / args.kind, ending)) return *found;
  std::vector<std::string> kinds;
  std::error_code missing;
  for (const fs::directory_entry& e : fs::directory_iterator(folder, missing)) {
    if (source_in(e.path(), ending)) kinds.push_back(e.path().filename());
  }
  std::sort(kinds.begin(), kinds.end());
  std::string list;
  for (const std::string& kind : kinds) list += (list.empty() ? "" : ", ") + kind;
  throw Error(ErrorCode::kUsage, "there is no template" + std::string(args.c ? " in C" : "") + " of the kind \"" +
                                     args.kind + "\"; kinds: " + (list.empty() ? "none in " + folder.string() : list));
}

void check_name(const std::string& name) {
  const bool good = !name.empty() && name.size() < 48 && name.front() != '.' && name.back() != '.' &&
                    name.find("..") == std::string::npos && std::all_of(name.begin(), name.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
                    });
  const char first = good ? name[name.rfind('.') + 1] : '0';
  if (!good || first < 'a' || first > 'z') {
    throw Error(ErrorCode::kUsage, "\"" + name +
                                       "\" is no component's name: write snake_case, with your own before it and a "
                                       "dot if you like, as in acme.typical");
  }
}

int run(const Args& args) {
  check_name(args.name);
  const fs::path templates = installed_at() / "share/tenon/template";
  const fs::path source = template_for(templates, args), folder = args.folder;
  const std::string old_name = source.stem().string();
  const auto cuda_source = args.cuda ? source_in(templates / args.kind, ".cu") : std::nullopt;
  if (args.cuda && !cuda_source) {
    throw Error(ErrorCode::kUsage, "there is no template for CUDA of the kind \"" + args.kind + "\"");
  }
  if (fs::exists(folder) && !fs::is_directory(folder)) {
    throw Error(ErrorCode::kUsage, {folder.string(), 0, 0}, "is a file; name a folder");
  }
  if (fs::exists(folder) && !fs::is_empty(folder) && !args.force) refuse_to_replace(folder);
  const Replacements names = {{"\"" + old_name + "\"", "\"" + args.name + "\""},
                              {args.kind + "." + old_name, args.kind + "." + args.name},
                              {class_of(old_name), class_of(args.name)}};
  const Replacements keys = {{"@KIND@", args.kind},
                             {"@NAME@", args.name},
                             {"@TARGET@", class_of(args.name)},
                             {"@LANGUAGE@", args.c ? "C" : "CXX"},
                             {"@SOURCE@", args.name + source.extension().string()},
                             {"@CUDA_SOURCE@", args.name + ".cu"},
                             {"@PREFIX@", installed_at().string()}};
  fs::create_directories(folder);
  write(folder / (args.name + source.extension().string()), replaced(read(source), names));
  std::string build = replaced(read(templates / "project/CMakeLists.txt"), keys);
  if (cuda_source) {
    write(folder / (args.name + ".cu"), replaced(read(*cuda_source), names));
    build += replaced(read(templates / "project/cuda.cmake"), keys);
  }
  write(folder / "CMakeLists.txt", build);
  const fs::path part = templates / args.kind / "pipeline.toml";
  const std::string section =
      fs::exists(part) ? replaced(read(part), names) : "[" + args.kind + "]\nuse = \"" + args.name + "\"\n";
  write(folder / "pipeline.toml", read(templates / "project/pipeline.toml") + section);
  write(folder / "README.md", replaced(read(templates / "project/README.md"), keys));
  write(folder / "test.sh", replaced(read(templates / "project/test.sh"), keys));
  fs::permissions(folder / "test.sh", fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec,
                  fs::perm_options::add);
  std::printf("%s: a %s named %s; ./test.sh there builds, checks and runs it\n", folder.c_str(), args.kind.c_str(),
              args.name.c_str());
  return kOk;
}

}  // namespace

Run add_plugin_new(CLI::App& plugin) {
  CLI::App* command =
      plugin.add_subcommand("new", "Write a project to start a plugin from, which builds and runs as it is.");
  auto args = std::make_shared<Args>();
  command->add_option("--kind", args->kind, "The kind of component, as in sampler")->required();
  command->add_option("--name", args->name, "Its name, as in typical or acme.typical")->required();
  command->add_flag("--c", args->c, "In C11");
  command->add_flag("--cuda", args->cuda, "For CUDA, too");
  command->add_option("DIR", args->folder, "The folder to write, new or empty")->required();
  command->add_flag("--force", args->force, "Write into a folder that is not empty, over files of the same names");
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
