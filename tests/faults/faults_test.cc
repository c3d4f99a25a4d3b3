// This tries every command under faults. A clean run of the command on a tiny model counts how often it allocates,
// opens, maps, reads, writes and starts threads (inject.cc does, preloaded). Then it runs again and again, and each
// time another of these calls fails. Whatever fails, the command must
//   - end by itself, with one of the documented exit codes and no signal;
//   - where it ends with an error: say why on standard error, in words that name the cause;
//   - where it ends without one (what failed was not needed): put out what the clean run did;
//   - leave no file that is half written, none under a temporary name, and what an output file held before.
//
// All calls of each kind are tried, and of allocations a fixed share: the first call from each of up to kCallers
// stacks. TENON_FAULTS=all tries all calls, TENON_FAULTS=N every N-th of what would be tried otherwise,
// TENON_FAULTS_PART=K/N one of N shares (K from 0) of what that is, for several machines or cores. Under the address
// sanitizer every 16th is, and a leak is an error as well.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "commands.h"
#include "run.h"

namespace tenon::faults {
namespace {

constexpr size_t kCallers = 150;
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kShare = 16;
#else
constexpr size_t kShare = 1;
#endif
constexpr size_t kMostShown = 12;
constexpr const char* kPrevious = "what was there before\n";

std::string contents(const fs::path& path) {
  if (!fs::is_directory(path)) return text_of(path);
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path))
    files[entry.path().filename()] = text_of(entry.path());
  std::string all;
  for (const auto& [name, text] : files) all += name + '\n' + text;
  return all;
}

struct Kind {
  std::string name;
  const char* cause;  // a message must have this, a regular expression
};
// A message names the cause in the system's own words for the error, or in the project's.
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
  std::vector<uint64_t> callers;
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
                        environment({"TENON_INJECT_MEMINFO=" + meminfo_, "TENON_INJECT_CALLERS=" + kind_.name}));
    EXPECT_EQ(clean.outcome.code, 0) << clean.outcome.err;
    std::istringstream lines(clean.outcome.report);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string name;
      words >> name;
      uint64_t number = 0;
      while (words >> number) name == "callers" ? clean.callers.push_back(number) : void(clean.counts[name] = number);
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
      const size_t callers = clean_.callers.size(), wanted = std::min(callers, kCallers);
      for (size_t i = 0; i < wanted; ++i) calls.push_back(clean_.callers[i * callers / wanted]);
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

  // Returns what is wrong with how the command ended, or "".
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

  // `previous` says that the outputs were there before, `complete` that they must be made.
  std::string wrong_files(bool previous, bool complete) const {
    for (const fs::directory_entry& entry : fs::directory_iterator(place().out)) {
      const std::string name = entry.path().filename();
      if (!clean_.files.contains(name)) return name + " is left over";
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
}  // namespace tenon::faults
