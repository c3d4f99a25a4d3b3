// This starts the program as its users do and waits for it: arguments, environment, pipes, signals, what it prints and
// how it ends.
#include "program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

namespace tenon::e2e {
namespace {

pid_t spawn(const Words& words, const posix_spawn_file_actions_t& files) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, argv[0], &files, nullptr, argv.data(), environ);
  EXPECT_EQ(error, 0) << argv[0];
  return pid;
}

int wait_for(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Outcome run(const Words& words, const std::string& input) {
  const std::filesystem::path folder = temporary_folder();
  write_file(folder / "in", input);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  const std::string in = folder / "in", out = folder / "out", err = folder / "err";
  posix_spawn_file_actions_addopen(&files, 0, in.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&files, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);
  const pid_t pid = spawn(words, files);
  posix_spawn_file_actions_destroy(&files);
  Outcome outcome;
  outcome.code = wait_for(pid);
  outcome.out = read_file(out);
  outcome.err = read_file(err);
  std::filesystem::remove_all(folder);
  return outcome;
}

// Returns the program under test. TENON_E2E_PROGRAM names another one, to see a test fail on an older program.
const std::string& program() {
  static const std::string path = [] {
    const char* other = std::getenv("TENON_E2E_PROGRAM");
    return std::string(other != nullptr ? other : TENON_PROGRAM);
  }();
  return path;
}

struct Root {
  std::filesystem::path path;
  Root() {
    std::string name = std::filesystem::temp_directory_path() / "tenon_e2e_XXXXXX";
    path = mkdtemp(name.data());
  }
  ~Root() { std::filesystem::remove_all(path); }
};

}  // namespace

Outcome tenon(const Words& words, const std::string& input) {
  return run(Words{program()} + words, input);
}

Outcome tenon_line(const std::string& line) {
  return run({"/bin/sh", "-c", "tenon() { '" + program() + "' \"$@\"; }; " + line}, "");
}

boost::json::value tenon_json(const Words& words, const std::string& input) {
  const Outcome outcome = tenon(words, input);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  boost::system::error_code error;
  boost::json::value value = boost::json::parse(outcome.out, error);
  EXPECT_FALSE(error) << outcome.out;
  return error ? boost::json::value() : value;
}

Running::Running(const Words& words) : err_(temporary_folder() / "err") {
  std::array<int, 2> in{}, out{};
  EXPECT_EQ(pipe2(in.data(), O_CLOEXEC), 0);
  EXPECT_EQ(pipe2(out.data(), O_CLOEXEC), 0);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in[0], 0);
  posix_spawn_file_actions_adddup2(&files, out[1], 1);
  posix_spawn_file_actions_addopen(&files, 2, err_.c_str(), O_WRONLY | O_CREAT, 0600);
  pid_ = spawn(Words{program()} + words, files);
  posix_spawn_file_actions_destroy(&files);
  close(in[0]);
  close(out[1]);
  input_ = in[1];
  output_ = out[0];
}

Running::~Running() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    wait_for(pid_);
  }
  if (input_ >= 0) close(input_);
  close(output_);
}

void Running::say(const std::string& text) {
  EXPECT_EQ(write(input_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

void Running::wait_for_output() {
  std::array<char, 4096> bytes{};
  const ssize_t count = read(output_, bytes.data(), bytes.size());
  EXPECT_GT(count, 0) << read_file(err_);
  if (count > 0) out_.append(bytes.data(), static_cast<size_t>(count));
}

void Running::wait_for_message(const std::string& text) {
  while (read_file(err_).find(text) == std::string::npos) {
    siginfo_t info{};
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT), 0);
    ASSERT_EQ(info.si_pid, 0) << "ended without saying " << text;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void Running::wait_for_open_file(const std::filesystem::path& folder) {
  for (;;) {
    std::error_code gone;  // a descriptor may be closed while it is looked at
    for (const auto& file : std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/fd", gone)) {
      if (std::filesystem::read_symlink(file, gone).string().starts_with(folder.string() + "/")) return;
    }
    siginfo_t info{};
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT), 0);
    ASSERT_EQ(info.si_pid, 0) << "ended without opening a file in " << folder << ": " << read_file(err_);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Running::interrupt() {
  signal(SIGINT);
}

void Running::signal(int number) {
  kill(pid_, number);
}

bool Running::ended() const {
  siginfo_t info{};
  EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT), 0);
  return info.si_pid != 0;
}

Outcome Running::finish() {
  std::array<char, 4096> bytes{};
  for (ssize_t count = 0; (count = read(output_, bytes.data(), bytes.size())) > 0;)
    out_.append(bytes.data(), static_cast<size_t>(count));
  const int code = wait_for(pid_);
  pid_ = -1;
  return {code, out_, read_file(err_)};
}

std::filesystem::path temporary_folder() {
  static const Root root;
  static int count = 0;
  std::filesystem::path folder = root.path / std::to_string(count++);
  std::filesystem::create_directory(folder);
  return folder;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(TENON_SOURCE_DIR) / "tests/golden/data" / name;
}

const Words& greedy() {
  static const Words words = {"--set", "sampler.chain=[]", "--set", "sampler.select=greedy"};
  return words;
}

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace tenon::e2e
