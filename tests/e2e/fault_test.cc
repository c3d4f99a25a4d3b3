// These tests look at what ends the program from outside or from within: signals, outputs that are gone, components
// that crash, files that shrink. Each ends with its exit code and a message, and leaves no half file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <ostream>
#include <thread>
#include <utility>

#include "program.h"

namespace tenon::e2e {
namespace {

using testing::HasSubstr;
using testing::Not;

const Words kLong = {
    "generate", kStories, "-p", "<10>", "-n", "8000", "--ignore-end", "--set", "kv_cache.capacity=8192"};

std::string bad_plugin(const std::string& name) {
  return std::string(TENON_BAD_PLUGINS) + "/" + name + "/" + name + ".cpu.so";
}

// ---- signals

struct Ending {
  const char* name;
  int signal, code;
};
void PrintTo(const Ending& ending, std::ostream* out) {
  *out << ending.name;
}

class Signals : public testing::TestWithParam<Ending> {};

TEST_P(Signals, EndTheProgramWithTheTextSoFar) {
  const std::string trace = temporary_folder() / "t.json";
  Running process(kLong + Words{"--trace", trace, "--set", "trace.steps=4"});
  process.wait_for_output();
  process.signal(GetParam().signal);
  const Outcome outcome = process.finish();
  EXPECT_EQ(outcome.code, GetParam().code) << outcome.err;
  EXPECT_EQ(outcome.out.back(), '\n');
  EXPECT_GT(outcome.out.size(), 1u);
  EXPECT_THAT(outcome.err, HasSubstr("| tenon generate"));
  EXPECT_EQ(tenon({"trace", "check", trace}).code, 0);
}

INSTANTIATE_TEST_SUITE_P(All, Signals,
                         testing::Values(Ending{"Interrupt", SIGINT, 130}, Ending{"Terminate", SIGTERM, 143},
                                         Ending{"HangUp", SIGHUP, 129}),
                         [](const auto& param) { return param.param.name; });

TEST(Faults, AHangUpThatIsIgnoredStaysSo) {
  const Outcome outcome = tenon_line(
      "trap '' HUP; tenon generate synthetic:stories15m -p '<10>' -n 4 --ignore-end & "
      "pid=$!; kill -HUP $pid; wait $pid");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

// This has no `trap`: beyond the limit the system sends SIGXFSZ, which kills a process that does not expect it.
TEST(Faults, TheLimitOnTheSizeOfFilesLeavesNoPart) {
  const std::filesystem::path folder = temporary_folder();
  for (const std::string& command :
       Words{"generate synthetic:stories15m -p '<10>' -n 4 --trace '" + (folder / "t.json").string() + "'",
             "quantize '" + golden("tiny-gqa-untied.gguf").string() + "' '" + (folder / "q.gguf").string() +
                 "' --scheme F16",
             "bench synthetic:stories15m --warmups 0 --runs 1 --prompt-tokens 4 --new-tokens 2 -o '" +
                 (folder / "b.txt").string() + "'"}) {
    const Outcome outcome = tenon_line("ulimit -f 1; tenon " + command);
    EXPECT_EQ(outcome.code, 7) << command << ": " << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("File too large")) << command;
    std::filesystem::remove(folder / "b.txt");  // rows are there as they come
    EXPECT_TRUE(is_empty(folder)) << command;
  }
}

// ---- standard output, descriptors

TEST(Faults, AnOutputThatIsGoneIsNamedWithTheReason) {
  const std::string generate = "tenon generate synthetic:stories15m -p '<10>' -n 4 --ignore-end ";
  struct Case {
    std::string line;
    const char* reason;
  };
  for (const Case& c :
       {Case{generate + ">/dev/full", "No space left on device"},
        Case{generate + "--json >/dev/full", "No space left on device"}, Case{generate + ">&-", "it is closed"},
        Case{"tenon plan synthetic:stories15m >/dev/full", "No space left on device"},
        Case{"tenon inspect >&-", "it is closed"}, Case{"tenon --help >/dev/full", "No space left on device"},
        Case{"{ " + generate + "; echo code $? >&2; } | true", "Broken pipe"}}) {
    const Outcome outcome = tenon_line(c.line);
    const bool piped = c.line.front() == '{';
    EXPECT_EQ(outcome.code, piped ? 0 : 7) << c.line << ": " << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(std::string("standard output: cannot be written: ") + c.reason)) << c.line;
    EXPECT_THAT(outcome.err, HasSubstr(piped ? "code 7" : ""));
  }
}

// A file must not get the number of an output that the caller has closed.
TEST(Faults, AClosedOutputDoesNotWriteIntoFiles) {
  const std::filesystem::path trace = temporary_folder() / "t.json";
  const Outcome outcome = tenon_line("tenon generate synthetic:stories15m -p '<10>' -n 4 --ignore-end --trace '" +
                                     trace.string() + "' >&- 2>&-");
  EXPECT_EQ(outcome.code, 7);
  EXPECT_EQ(tenon({"trace", "check", trace}).code, 0);
}

TEST(Faults, TooFewFileDescriptorsAreNamed) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer opens files of its own";
#endif
  size_t named = 0;
  for (int limit = 3; limit < 16; ++limit) {
    const Outcome outcome = tenon_line("ulimit -n " + std::to_string(limit) + "; tenon generate '" +
                                       golden("tiny-gqa-untied.gguf").string() + "' -p x -n 2");
    if (outcome.code == 0) continue;
    if (outcome.code == 127) continue;  // not even the libraries of the program could be opened
    EXPECT_THAT(outcome.err, HasSubstr("Too many open files")) << limit << " ended with " << outcome.code;
    ++named;
  }
  EXPECT_GT(named, 0u);
}

// ---- what is read

TEST(Faults, APromptIsBounded) {
  for (const std::string from : {"-f /dev/zero", "</dev/zero"}) {
    const Outcome outcome = tenon_line("tenon generate synthetic:stories15m -n 2 " + from);
    EXPECT_EQ(outcome.code, 8) << from << ": " << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("64 MiB")) << from;
  }
}

TEST(Faults, APipeWithoutAWriterIsSaidAndRead) {
  const std::filesystem::path pipe = temporary_folder() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Running process({"generate", kStories, "-n", "4", "--ignore-end", "-f", pipe});
  process.wait_for_message("is a pipe; waiting for what is written to it");
  write_file(pipe, "<10><11>");
  const Outcome outcome = process.finish();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, tenon({"generate", kStories, "-n", "4", "--ignore-end", "-p", "<10><11>"}).out);
}

TEST(Faults, AConfigurationIsARegularFile) {
  const std::filesystem::path folder = temporary_folder();
  ASSERT_EQ(mkfifo((folder / "pipe.toml").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", folder / "zero.toml");
  for (const char* name : {"pipe.toml", "zero.toml"}) {
    const Outcome outcome = tenon({"plan", folder / name});
    EXPECT_EQ(outcome.code, 7) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(name));
    EXPECT_THAT(outcome.err, HasSubstr("not a regular file"));
  }
}

// ---- components

struct Fault {
  const char *what, *where;
  std::string says;
};
void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.what << " in " << fault.where;
}

Words with_fault(const std::string& what, const std::string& where) {
  return {"generate",  kStories,
          "-p",        "<10>",
          "-n",        "4",
          "--threads", "2",
          "--set",     "plugin=[{path=\"" + bad_plugin("faults") + "\"}]",
          "--set",     "sampler.chain=[]",
          "--set",     "sampler.select={use=\"faults\", what=\"" + what + "\", where=\"" + where + "\"}"};
}

class ComponentFaults : public testing::TestWithParam<Fault> {};

TEST_P(ComponentFaults, NameTheComponentAndTheOp) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has the signals";
#endif
  const Fault& fault = GetParam();
  const Outcome outcome = tenon(with_fault(fault.what, fault.where));
  EXPECT_EQ(outcome.code, 9) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(fault.says));
}

INSTANTIATE_TEST_SUITE_P(All, ComponentFaults,
                         testing::Values(Fault{"segv", "step", "sampler: sampler.faults crashed in choose (SIGSEGV)"},
                                         Fault{"abort", "step", "sampler: sampler.faults crashed in choose (SIGABRT)"},
                                         Fault{"fpe", "step", "sampler: sampler.faults crashed in choose (SIGFPE)"},
                                         Fault{"stack", "step", "sampler: sampler.faults crashed in choose (SIGSEGV)"},
                                         Fault{"exit", "step", "sampler: sampler.faults ended the process in choose"},
                                         Fault{"leave", "step", "sampler: sampler.faults ended the process in choose"},
                                         Fault{"segv", "record", "sampler.faults crashed in record (SIGSEGV)"},
                                         Fault{"segv", "create", "sampler.faults crashed in create (SIGSEGV)"},
                                         Fault{"exit", "create", "sampler.faults ended the process in create"}),
                         [](const auto& param) { return std::string(param.param.what) + "_" + param.param.where; });

TEST(Faults, AComponentThatHangsIsNamedByTheLimitOfAStep) {
  const Outcome outcome = tenon(with_fault("hang", "step") + Words{"--step-limit", "0.5"});
  EXPECT_EQ(outcome.code, 9) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("--step-limit"));
  EXPECT_THAT(outcome.err, HasSubstr("running: sampler: sampler.faults in choose"));
  const Words sound = {"generate", kStories, "-p", "<10>", "-n", "4"};
  EXPECT_EQ(tenon(sound + Words{"--step-limit", "600"}).out, tenon(sound).out);
}

TEST(Faults, AComponentThatHangsIsNamedByTheSecondInterrupt) {
  for (const auto& [signal, code] : {std::pair{SIGINT, 130}, {SIGTERM, 143}}) {
    Running process(with_fault("hang", "step"));
    process.wait_for_message("hangs");
    // The first one asks for an end that does not come; two at once may be one.
    while (!process.ended()) {
      process.signal(signal);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const Outcome outcome = process.finish();
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("running: sampler: sampler.faults in choose"));
  }
}

TEST(Faults, ACrashOutsideOfComponentsKillsAsEver) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer has the signals";
#endif
  Running process(kLong);
  process.wait_for_output();
  process.signal(SIGSEGV);
  const Outcome outcome = process.finish();
  EXPECT_TRUE(outcome.code == -1 || outcome.code == 9) << outcome.err;  // 9: it came while an op ran
}

// ---- files

TEST(Faults, AModelThatShrinksIsNamed) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has the signals";
#endif
  const std::filesystem::path model = temporary_folder() / "m.gguf";
  std::filesystem::copy_file(golden("tiny-gqa-untied.gguf"),
                             model);  // its matrices are multiplied where they are mapped
  Running process({"generate", model, "-p", "x", "-n", "10000000", "--ignore-end", "--set", "kv_cache.use=sink_window",
                   "--set", "kv_cache.window=60", "--set", "kv_cache.capacity=64"});
  process.wait_for_output();
  std::filesystem::resize_file(model, 4096);
  const Outcome outcome = process.finish();
  EXPECT_EQ(outcome.code, 10) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(model.string() + ": error: the file was made shorter while it was in use"));
}

}  // namespace
}  // namespace tenon::e2e
