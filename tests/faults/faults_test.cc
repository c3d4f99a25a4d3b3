// Every command under faults. A clean run of the command on a tiny model counts how often it allocates, opens, maps,
// reads, writes and starts threads (inject.cc does, preloaded). Then it runs again and again, and each time another of
// these calls fails. Whatever fails, the command must
//   - end by itself, with one of the documented exit codes and no signal;
//   - where it ends with an error: say why on standard error, in words that name the cause;
//   - where it ends without one (what failed was not needed): put out what the clean run did;
//   - leave no file that is half written, none under a temporary name, and what an output file held before.
//
// Of each kind of call all are tried, of allocations a fixed share: the first call from each of up to kSites stacks.
// TENON_FAULTS=all tries all calls, TENON_FAULTS=N every N-th of what would be tried otherwise, TENON_FAULTS_PART=K/N one
// of N shares (K from 0) of what that is, for several machines or cores. Under the address sanitizer every 16th is, and a
// leak is an error as well.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace tenon {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr int kTimeout = 60'000;  // ms; a run takes some 20
constexpr size_t kSites = 400;
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kShare = 16;
#else
constexpr size_t kShare = 1;
#endif
constexpr size_t kMostShown = 12;
constexpr const char* kPrevious = "what was there before\n";

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

struct Outcome {
  int code = -1;  // the exit status; -1 if a signal ended the process
  int signal = 0;
  bool hung = false;
  std::string out, err, report;
};

// Runs the words in `folder` with standard input from a file, and what a run leaves behind beside it.
Outcome run(const Words& words, const fs::path& folder, const fs::path& input, const Words& environment) {
  const fs::path beside = folder.parent_path();
  const std::string out = beside / "stdout", err = beside / "stderr", report = beside / "report";
  for (const std::string& file : {out, err, report}) fs::remove(file);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, input.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&files, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addchdir_np(&files, folder.c_str());
  Words all_environment = environment;
  for (char** word = environ; *word != nullptr; ++word) all_environment.emplace_back(*word);
  all_environment.push_back("TENON_INJECT_REPORT=" + report);
  const auto pointers = [](const Words& list) {
    std::vector<char*> all;
    for (const std::string& word : list) all.push_back(const_cast<char*>(word.c_str()));
    all.push_back(nullptr);
    return all;
  };
  pid_t pid = -1;
  const int error = posix_spawn(&pid, words.front().c_str(), &files, nullptr, pointers(words).data(),
                                pointers(all_environment).data());
  posix_spawn_file_actions_destroy(&files);
  EXPECT_EQ(error, 0) << words.front();
  Outcome outcome;
  if (error != 0) return outcome;
  pollfd ended{.fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0)), .events = POLLIN, .revents = 0};
  if (poll(&ended, 1, kTimeout) == 0) {
    outcome.hung = true;
    kill(pid, SIGKILL);
  }
  close(ended.fd);
  int status = 0;
  waitpid(pid, &status, 0);
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  outcome.out = text_of(out);
  outcome.err = text_of(err);
  outcome.report = text_of(report);
  return outcome;
}

// The folders of a test program: inputs are made once, `out` is where the command runs.
struct Place {
  fs::path root, inputs, out;
  Place() {
    std::string name = fs::temp_directory_path() / "tenon_faults_XXXXXX";
    root = mkdtemp(name.data());
    inputs = root / "inputs", out = root / "out";
    fs::create_directory(inputs);
    fs::create_directory(out);
  }
  ~Place() { fs::remove_all(root); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
};

const Place& place() {
  static const Place made;
  return made;
}

fs::path golden(const std::string& name) {
  return fs::path(TENON_SOURCE_DIR) / "tests/golden/data" / name;
}

std::string gguf() {
  return golden("tiny-gqa-untied.gguf");
}

// A folder with safetensors and a chat template, Zephyr's.
std::string folder_model() {
  const fs::path folder = place().inputs / "model";
  if (fs::exists(folder)) return folder;
  fs::create_directory(folder);
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"})
    fs::copy(golden("tiny-gqa-untied") / name, folder / name);
  constexpr const char* kTemplate = R"({% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\n' + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %})";
  const boost::json::object tokenizer = {{"eos_token", "</s>"}, {"bos_token", "<s>"}, {"chat_template", kTemplate}};
  write_text(folder / "tokenizer_config.json", boost::json::serialize(tokenizer));
  return folder;
}

std::string input_file(const std::string& name, const std::string& text) {
  const fs::path path = place().inputs / name;
  if (!fs::exists(path)) write_text(path, text);
  return path;
}

std::string text_file() {
  return input_file("text.txt",
                    "A machine that has run out of something says so, ends, and leaves what was there as it was.\n");
}

// A file that another command makes, once.
std::string made_by(const std::string& name, const Words& words) {
  const fs::path path = place().inputs / name;
  if (!fs::exists(path)) {
    const Outcome made = run(Words{TENON_PROGRAM} + words + Words{path}, place().inputs, "/dev/null", {});
    EXPECT_EQ(made.code, 0) << made.err;
  }
  return path;
}

// Without numbers that time decides, such as 12.5 tok/s, and without the option that lets an output be replaced.
std::string without_times(const std::string& text) {
  static const std::regex times(R"([0-9][0-9.e+]*( tok/s| s\b| GB/s|,"read_gbps))"), force(" --force\\b");
  return std::regex_replace(std::regex_replace(text, times, "T$1"), force, "");
}

std::string without_json_numbers(const std::string& text) {
  static const std::regex numbers(R"(:[0-9][-0-9.Ee+]*)");
  return std::regex_replace(text, numbers, ":N");
}

std::string contents(const fs::path& path) {
  if (!fs::is_directory(path)) return text_of(path);
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path))
    files[entry.path().filename()] = text_of(entry.path());
  std::string all;
  for (const auto& [name, text] : files) all += name + '\n' + text;
  return all;
}

struct Command {
  std::string name;
  std::function<Words()> words;
  std::string input;                                        // on standard input
  Words outputs = {};                                       // files or folders that it makes
  std::string (*stable_out)(const std::string&) = nullptr;  // what of standard output is the same in every run
  std::string (*stable_file)(const std::string&) =
      nullptr;           // the same of output files; nullptr: times, which is_whole() looks at
  bool folders = false;  // outputs are folders, of which none may be there before
};

std::string same(const std::string& text) {
  return text;
}

const Words kThreads = {"--threads", "2"};

// What a short run of each command is.
std::vector<Command> commands() {
  const std::string text = "Hello there";
  return {
      {.name = "generate",
       .words = [] { return Words{"generate", gguf(), "-p", "Hello", "-n", "3"} + kThreads; },
       .input = "",
       .stable_out = same},
      {.name = "generate_json",
       .words =
           [] {
             return Words{"generate", folder_model(), "-n", "3", "--chat", "--json", "--logprobs", "2"} + kThreads +
                    Words{"--set", "quantization.use=int8wo", "--set", "kv_cache.use=int8"};
           },
       .input = "Hello",
       .stable_out = without_json_numbers},
      {.name = "generate_draft",
       .words =
           [] {
             return Words{"generate", gguf(),
                          "-p",       "Hello",
                          "-n",       "5",
                          "--set",    "draft.use=ngram",
                          "--set",    "kv_cache.use=sink_window",
                          "--set",    "kv_cache.window=64"} +
                    kThreads;
           },
       .input = "",
       .stable_out = same},
      {.name = "chat",
       .words =
           [] {
             return Words{"chat", folder_model(), "-n", "3"} + kThreads;
           },
       .input = "Hello\n/reset\nHi\n",
       .stable_out = same},
      {.name = "quantize",
       .words =
           [] {
             return Words{"quantize", gguf(), "q.gguf", "--scheme", "Q8_0"};
           },
       .input = "",
       .outputs = {"q.gguf"},
       .stable_out = same,
       .stable_file = same},
      {.name = "quantize_folder",
       .words =
           [] {
             return Words{"quantize", folder_model(), "made", "--scheme", "int8wo"};
           },
       .input = "",
       .outputs = {"made"},
       .stable_out = same,
       .stable_file = same,
       .folders = true},
      {.name = "eval_perplexity",
       .words =
           [] {
             return Words{"eval", "perplexity",    gguf(), "--text",        text_file(), "--context",
                          "16",   "--max-windows", "2",    "--save-logits", "base.kld"} +
                    kThreads;
           },
       .input = "",
       .outputs = {"base.kld"},
       .stable_out = without_times,
       .stable_file = same},
      {.name = "eval_kld",
       .words =
           [] {
             return Words{"eval",
                          "kld",
                          gguf(),
                          "--text",
                          text_file(),
                          "--base",
                          made_by("base.kld", {"eval", "perplexity", gguf(), "--text", text_file(), "--context", "16",
                                               "--max-windows", "2", "--save-logits"})} +
                    kThreads;
           },
       .input = "",
       .stable_out = without_times},
      {.name = "trace",
       .words = [] { return Words{"generate", gguf(), "-p", "Hello", "-n", "3", "--trace", "t.json.gz"} + kThreads; },
       .input = "",
       .outputs = {"t.json.gz"},
       .stable_out = same},
      {.name = "trace_stats",
       .words =
           [] {
             return Words{"trace", "stats",
                          made_by("t.json", {"generate", gguf(), "-p", "Hello", "-n", "3", "--trace"})};
           },
       .input = "",
       .stable_out = same},
      {.name = "trace_merge",
       .words =
           [] {
             const std::string trace = made_by("t.json", {"generate", gguf(), "-p", "Hello", "-n", "3", "--trace"});
             return Words{"trace", "merge", trace, trace, "-o", "m.json"};
           },
       .input = "",
       .outputs = {"m.json"},
       .stable_out = same},
      {.name = "bench",
       .words =
           [] {
             return Words{"bench",  gguf(), "--prompt-tokens", "4",    "--new-tokens", "2",     "--warmups", "0",
                          "--runs", "1",    "--format",        "json", "-o",           "b.json"} +
                    kThreads;
           },
       .input = "",
       .outputs = {"b.json"},
       .stable_out = same},
  };
}

struct Kind {
  std::string name;
  const char* cause;  // what a message must have, as a regular expression
};
// "names the cause": the system's own words for the error, or the project's.
const std::vector<Kind>& kinds() {
  // A thread that is not started for want of memory is EAGAIN's.
  static const std::vector<Kind> all = {{"alloc", "[Mm]emory|started: Resource temporarily unavailable"},
                                        {"open", "Too many open files"},
                                        {"map", "[Mm]emory|started: Resource temporarily unavailable"},
                                        {"read", "Input/output error"},
                                        {"write", "No space left on device|Input/output error"},
                                        {"thread", "thread|Resource temporarily unavailable"}};
  return all;
}

struct CleanRun {
  Outcome outcome;
  std::map<std::string, uint64_t> counts;
  std::vector<uint64_t> sites;
  std::map<std::string, std::string> files;
};

class Faults : public testing::Test {
 public:
  Faults(Command command, Kind kind) : command_(std::move(command)), kind_(std::move(kind)) {}

  void TestBody() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the thread sanitizer's allocator cannot be stood before";
#endif
    words_ = Words{TENON_PROGRAM} + command_.words();
    input_ = input_file(command_.name + ".in", command_.input);
    meminfo_ = input_file("meminfo", "MemTotal: 262144 kB\nMemAvailable: 131072 kB\n");
    clean_ = clean_run();
    if (HasFatalFailure()) return;
    for (const uint64_t n : chosen()) {
      try_one(n, false);
      if (n % 4 == 1) try_one(n, true);
    }
    RecordProperty("faults", std::to_string(fired_));
    std::printf("%s: %zu faults injected, %zu ended with an error, %zu went on; the clean run has %lu\n",
                kind_.name.c_str(), fired_, failed_, fired_ - failed_, clean_.counts[kind_.name]);
    if (wrong_ > 0) ADD_FAILURE() << wrong_ << " faults ended as they must not, in " << shown_.size() << " ways";
  }

 private:
  // The sanitizer wants to be loaded first, and ends the process where an allocation fails, unless it is told
  // otherwise.
  static Words environment(const Words& more) {
    return Words{"LD_PRELOAD=" TENON_INJECT_LIBRARY,
                 "ASAN_OPTIONS=verify_asan_link_order=0:allocator_may_return_null=1"} +
           more;
  }

  CleanRun clean_run() {
    prepare(false);
    CleanRun clean;
    clean.outcome = run(words_, place().out, input_,
                        environment({"TENON_INJECT_MEMINFO=" + meminfo_, "TENON_INJECT_SITES=" + kind_.name}));
    EXPECT_EQ(clean.outcome.code, 0) << clean.outcome.err;
    std::istringstream lines(clean.outcome.report);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string name;
      words >> name;
      uint64_t number = 0;
      while (words >> number) name == "sites" ? clean.sites.push_back(number) : void(clean.counts[name] = number);
    }
    for (const std::string& name : command_.outputs) {
      EXPECT_TRUE(fs::exists(place().out / name)) << name;
      clean.files[name] = contents(place().out / name);
    }
    EXPECT_GT(clean.counts["alloc"], 0U) << "nothing was counted: " << clean.outcome.report;
    return clean;
  }

  std::vector<uint64_t> chosen() const {
    const char* const share = std::getenv("TENON_FAULTS");
    const uint64_t count = clean_.counts.at(kind_.name);
    std::vector<uint64_t> calls;
    if (kind_.name == "alloc" && (share == nullptr || std::string(share) != "all")) {
      const size_t sites = clean_.sites.size(), wanted = std::min(sites, kSites);
      for (size_t i = 0; i < wanted; ++i) calls.push_back(clean_.sites[i * sites / wanted]);
    } else {
      for (uint64_t n = 1; n <= count; ++n) calls.push_back(n);
    }
    const size_t step = share == nullptr ? kShare : std::max(1UL, std::strtoul(share, nullptr, 10));
    size_t part = 0, parts = 1;
    if (const char* const of = std::getenv("TENON_FAULTS_PART")) {
      EXPECT_EQ(std::sscanf(of, "%zu/%zu", &part, &parts), 2);
    }
    std::vector<uint64_t> some;
    for (size_t i = part * step; i < calls.size(); i += step * parts) some.push_back(calls[i]);
    return some;
  }

  void prepare(bool previous) const {
    fs::remove_all(place().out);
    fs::create_directory(place().out);
    if (!previous || command_.folders) return;
    for (const std::string& name : command_.outputs) write_text(place().out / name, kPrevious);
  }

  void try_one(uint64_t n, bool later_too) {
    const bool previous = n % 2 == 0 && !command_.outputs.empty();
    prepare(previous);
    const std::string what = kind_.name + ':' + std::to_string(n) + (later_too ? "+" : "");
    const Words words = words_ + (previous && !command_.folders ? Words{"--force"} : Words{});
    const Outcome outcome =
        run(words, place().out, input_, environment({"TENON_INJECT_MEMINFO=" + meminfo_, "TENON_INJECT=" + what}));
    const bool fired = outcome.report.starts_with("fired ");
    fired_ += fired ? 1 : 0;
    failed_ += fired && outcome.code > 0 ? 1 : 0;
    const std::string wrong = judge(outcome, fired, previous);
    if (wrong.empty()) return;
    ++wrong_;
    const std::string function = outcome.report.substr(0, outcome.report.find('\n'));
    if (!shown_.insert(function + wrong + outcome.err).second || shown_.size() > kMostShown) return;
    std::string line = "TENON_INJECT=" + what + " LD_PRELOAD=" TENON_INJECT_LIBRARY;
    for (const std::string& word : words) line += ' ' + word;
    ADD_FAILURE() << what << ", " << function << ": " << wrong << '\n' << line << "\n" << outcome.err;
  }

  // What is wrong with how the command ended, or "".
  std::string judge(const Outcome& outcome, bool fired, bool previous) const {
    if (outcome.hung) return "it hangs";
    if (outcome.signal != 0) return std::string("it ends by a signal, ") + strsignal(outcome.signal);
    if (outcome.code == 0) {
      if (const std::string wrong = wrong_files(false, true); !wrong.empty()) return wrong;
      const auto stable = command_.stable_out;
      return stable(outcome.out) == stable(clean_.outcome.out) ? ""
                                                               : "it ends with code 0 and other output: " + outcome.out;
    }
    if (!fired) return "it fails by itself, with code " + std::to_string(outcome.code);
    if (outcome.code > 8 || outcome.code == 2) return "it ends with code " + std::to_string(outcome.code);
    if (!std::regex_search(outcome.err, std::regex(kind_.cause))) {
      return "it ends with code " + std::to_string(outcome.code) + " and a message that does not name the cause";
    }
    return wrong_files(previous && !command_.folders, false);
  }

  // `previous`: the outputs were there before; `complete`: they must be made.
  std::string wrong_files(bool previous, bool complete) const {
    for (const fs::directory_entry& entry : fs::directory_iterator(place().out)) {
      const std::string name = entry.path().filename();
      if (!clean_.files.contains(name)) return name + " is left behind";
    }
    for (const auto& [name, text] : clean_.files) {
      const fs::path path = place().out / name;
      if (!fs::exists(path)) {
        if (complete) return name + " was not made";
        if (previous) return name + ", which was there before, is gone";
        continue;
      }
      const std::string there = contents(path);
      if (previous && there == kPrevious) continue;
      if (!is_whole(path, there, text)) return name + " is half written";
    }
    return "";
  }

  bool is_whole(const fs::path& path, const std::string& there, const std::string& clean) const {
    if (command_.stable_file != nullptr) return command_.stable_file(there) == command_.stable_file(clean);
    if (path.filename() == "b.json") {  // a point that failed has a row as well
      boost::system::error_code broken;
      const boost::json::value rows = boost::json::parse(there, broken);
      return !broken && (rows.is_object() || rows.is_array());
    }
    const Outcome checked = run({TENON_PROGRAM, "trace", "check", path}, place().inputs, "/dev/null", {});
    return checked.code == 0;
  }

  Command command_;
  Kind kind_;
  Words words_;
  std::string input_, meminfo_;
  CleanRun clean_;
  size_t fired_ = 0, failed_ = 0, wrong_ = 0;
  std::set<std::string> shown_;
};

const bool registered = [] {
  for (const Command& command : commands()) {
    for (const Kind& kind : kinds()) {
      testing::RegisterTest("Faults", (command.name + "_" + kind.name).c_str(), nullptr, nullptr, __FILE__, __LINE__,
                            [=]() -> Faults* { return new Faults(command, kind); });
    }
  }
  return true;
}();

}  // namespace
}  // namespace tenon
