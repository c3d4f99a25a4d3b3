// The measures of `tenon eval` share these: a pipeline that scores, a text cut into windows, and the walk over them.
#pragma once

#include <boost/json.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "command.h"
#include "traced_engine.h"

namespace tenon::app {

struct EvalArgs {
  PipelineArgs pipeline;
  std::string text_file;
  uint32_t context = 512, max_windows = 0, buckets = 0;
  bool json = false;

  void add_to(CLI::App& command);  // it adds all options but context
};

// Opens a pipeline that can score texts of `context` tokens, for which its cache has room unless the arguments say
// another capacity. No weights are loaded yet.
std::unique_ptr<TracedEngine> open_scoring(const PipelineArgs& args, uint32_t context);
// Returns the command that measures the same; `words` stand after the pipeline's own.
std::string eval_line(const Engine& engine, const PipelineArgs& args, const std::string& measure,
                      const std::vector<std::string>& words);
// Ends output and trace. `complete` says that nobody has interrupted the work.
ExitCode end_scoring(TracedEngine& traced_engine, bool complete);

// Tokens [begin, end) of every window.
struct Positions {
  uint32_t begin = 0, end = 0;
};
// Cuts the scored tokens of a window into `count` ranges, as even as can be.
std::vector<Positions> cut_positions(uint32_t context, uint32_t count);
// Picks the values at these positions out of those of all scored tokens; each
// window's scored ones begin after its middle.
std::vector<double> values_at(std::span<const double> values, uint32_t context, Positions at);

// The text's tokens are cut into windows, each `context` long. Where the model begins a text with a token, the text has
// it, and in each window it stands in the place of the first.
class Windows {
 public:
  Windows(const Tokenizer& tokenizer, const std::string& text, uint32_t context);
  uint64_t tokens() const { return tokens_.size(); }
  uint64_t count() const { return tokens_.size() / window_.size(); }
  std::span<const int32_t> at(uint64_t index);  // it is valid until the next call
  std::string sha256(uint64_t count);           // hashes the first windows' ids as little-endian 32-bit integers

 private:
  std::vector<int32_t> tokens_, window_;
  std::optional<int32_t> bos_;
};

struct Walk {
  uint64_t windows = 0, scored = 0, fed = 0;  // so many tokens of them were scored and fed
  double seconds = 0;
};

// This holds a text and the pipeline that reads it.
class Evaluation {
 public:
  // Loads no weights. Throws Error, kRequest for a text that fills no window.
  explicit Evaluation(const EvalArgs& args);
  Engine& engine() { return traced_engine_->engine(); }
  Windows& windows() { return *windows_; }
  uint64_t count() const { return count_; }  // there are so many windows to score

  // Loads, then calls on_row for every scored token in order: the vocabulary's logits where it stood, and the token.
  // Ends early on Ctrl-C; of the window that it cuts short rows may have been given, but are not counted.
  using OnRow = std::function<void(std::span<const float> logits, int32_t token)>;
  Walk walk(const OnRow& on_row);

  // Returns what every measure reports first.
  boost::json::object json(const Walk& walk);
  std::string line(const std::string& measure, std::vector<std::string> words);
  ExitCode end(const Walk& walk) { return end_scoring(*traced_engine_, walk.windows == count_); }

 private:
  const EvalArgs& args_;
  std::unique_ptr<TracedEngine> traced_engine_;
  std::unique_ptr<Windows> windows_;
  uint64_t count_ = 0;
};

Run add_perplexity(CLI::App& eval);
Run add_kld(CLI::App& eval);
Run add_choices(CLI::App& eval);
Run add_retrieval(CLI::App& eval);

}  // namespace tenon::app
