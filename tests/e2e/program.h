// This runs `tenon` and keeps what it says.
#pragma once

#include <sys/types.h>

#include <boost/json.hpp>
#include <filesystem>
#include <string>
#include <vector>

namespace tenon::e2e {

using Words = std::vector<std::string>;

struct Outcome {
  int code = -1;  // it is the exit status; -1 if a signal ended the process
  std::string out, err;
};

// Runs the program with `input` on standard input.
Outcome tenon(const Words& words, const std::string& input = "");
// Does the same by a shell's line, in which "tenon" stands for the program.
Outcome tenon_line(const std::string& line);
// Returns standard output as JSON; fails the test and returns null if it is none, or the exit status is not 0.
boost::json::value tenon_json(const Words& words, const std::string& input = "");

// This is a process that is talked to while it runs. It is killed, if need be, when this is destroyed.
class Running {
 public:
  explicit Running(const Words& words);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  void say(const std::string& text);
  void wait_for_output();                                        // until there is more on standard output than before
  void wait_for_message(const std::string& text);                // it comes on standard error
  void wait_for_open_file(const std::filesystem::path& folder);  // the file is in it, with a name or without
  void interrupt();                                              // this sends SIGINT
  void signal(int number);
  void kill_now();  // this sends SIGKILL
  bool ended() const;
  Outcome finish();  // closes standard input and waits

 private:
  pid_t pid_ = -1;
  int input_ = -1, output_ = -1;
  std::string out_;
  std::filesystem::path err_;
};

// Makes a new folder of this test's own, gone when the process ends.
std::filesystem::path temporary_folder();
std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& text);

std::filesystem::path golden(const std::string& name);  // a file of tests/golden/data
inline const std::string kStories = "synthetic:stories15m";
const Words& greedy();  // these are overrides

Words operator+(Words a, const Words& b);

}  // namespace tenon::e2e
