// This runs a program for the tests of faults, in folders of their own.
#include "run.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace tenon::faults {
namespace {

constexpr int kTimeout = 60'000;  // ms; a run takes some 20

}  // namespace

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
Place::Place() {
  std::string name = fs::temp_directory_path() / "tenon_faults_XXXXXX";
  root = mkdtemp(name.data());
  inputs = root / "inputs";
  out = root / "out";
  fs::create_directory(inputs);
  fs::create_directory(out);
}

Place::~Place() {
  fs::remove_all(root);
}

const Place& place() {
  static const Place made;
  return made;
}

std::string input_file(const std::string& name, const std::string& text) {
  const fs::path path = place().inputs / name;
  if (!fs::exists(path)) write_text(path, text);
  return path;
}

}  // namespace tenon::faults
