// This runs a program for the tests of faults, in folders of their own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tenon::faults {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

Words operator+(Words a, const Words& b);
std::string text_of(const fs::path& path);
void write_text(const fs::path& path, const std::string& text);

// This is how a run ended, and what it left.
struct Outcome {
  int code = -1;  // it is the exit status; -1 if a signal ended the process
  int signal = 0;
  bool hung = false;
  std::string out, err, report;  // the report is that of inject.cc
};

// Runs the words in `folder` with standard input from the file `input`, and with `environment` besides this process's
// own. A run that takes too long is killed.
Outcome run(const Words& words, const fs::path& folder, const fs::path& input, const Words& environment);

// The test program has these folders: inputs are made once, and commands run in `out`. They go with the process.
struct Place {
  fs::path root, inputs, out;
  Place();
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
};

const Place& place();

// Returns the path of an input that has this text; it is written once.
std::string input_file(const std::string& name, const std::string& text);

}  // namespace tenon::faults
