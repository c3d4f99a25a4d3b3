// `tenon eval retrieval` measures whether a model finds a number that a long text hides. A cell of its table is a
// length and a depth, with as many tries as are asked for; the tries have numbers of their own. After an interruption
// it shows the tries that were made.
#include <algorithm>
#include <chrono>
#include <numeric>

#include "eval.h"
#include "haystack.h"
#include "interval.h"
#include "json_text.h"
#include "progress.h"
#include "report.h"
#include "spdlog/spdlog.h"
#include "table.h"
#include "text_input.h"

namespace tenon::app {
namespace {

struct Args {
  PipelineArgs pipeline;
  std::string text_file;
  std::vector<uint32_t> lengths = {512, 1024};
  std::vector<double> depths = {0, 0.25, 0.5, 0.75, 1};
  uint32_t tries = 10;
  bool json = false;
};

// This counts the texts of one length with a number at one depth.
struct Cell {
  uint32_t length = 0;
  double depth = 0;
  uint64_t tries = 0, found = 0;
  double log_likelihood = 0;  // it is the sum of those of the numbers
};

struct Search {
  std::vector<Cell> cells;  // first come the depths of the first length, then of the second, ...
  uint64_t tokens = 0;
  double seconds = 0;
  bool complete = true;
};

Search search(Engine& engine, std::span<const int32_t> text, const Args& args) {
  Search out;
  for (const uint32_t length : args.lengths) {
    for (const double depth : args.depths) out.cells.push_back({.length = length, .depth = depth});
  }
  Progress progress("texts");
  const std::stop_token cancel = interruption();
  const auto start = std::chrono::steady_clock::now();
  uint64_t done = 0;
  for (Cell& cell : out.cells) {
    for (uint32_t t = 0; t < args.tries; ++t) {
      const Continuation made = haystack(engine.tokenizer(), text, {cell.length, cell.depth, hidden_number(t)});
      const ContinuationScore found = score(engine, made, cancel);
      out.complete = !cancel.stop_requested();
      if (!out.complete) break;
      ++cell.tries;
      cell.found += found.likeliest ? 1 : 0;
      cell.log_likelihood += found.log_likelihood;
      out.tokens += made.tokens.size();
      progress.update(++done, out.cells.size() * args.tries);
    }
    if (!out.complete) break;
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

std::vector<std::string> words_of(const Args& args) {
  std::vector<std::string> words = {"--text", args.text_file, "--lengths"};
  for (const uint32_t length : args.lengths) words.push_back(std::to_string(length));
  words.push_back("--depths");
  for (const double depth : args.depths) words.push_back(fmt::format("{}", depth));
  words.insert(words.end(), {"--tries", std::to_string(args.tries)});
  if (args.json) words.push_back("--json");
  return words;
}

void print(const Args& args, Engine& engine, const Search& found) {
  uint64_t tries = 0, hits = 0;
  double log_likelihood = 0;
  for (const Cell& cell : found.cells) {
    tries += cell.tries;
    hits += cell.found;
    log_likelihood += cell.log_likelihood;
  }
  const Interval share = interval_of_share(hits, tries);
  const std::string line = eval_line(engine, args.pipeline, "retrieval", words_of(args));
  const double speed = per_second(static_cast<double>(found.tokens), found.seconds);
  const double mean = log_likelihood / static_cast<double>(tries);
  if (args.json) {
    boost::json::array cells;
    for (const Cell& cell : found.cells) {
      if (cell.tries == 0) continue;
      cells.push_back({{"length", cell.length},
                       {"depth", cell.depth},
                       {"tries", cell.tries},
                       {"found", cell.found},
                       {"mean_log_likelihood", cell.log_likelihood / static_cast<double>(cell.tries)}});
    }
    fmt::print("{}\n", json_text(boost::json::object{{"model", engine.config().model.path},
                                                     {"text", args.text_file},
                                                     {"tries", tries},
                                                     {"found", hits},
                                                     {"share_interval_95", {share.low, share.high}},
                                                     {"mean_log_likelihood", mean},
                                                     {"cells", cells},
                                                     {"tok_per_s", speed},
                                                     {"memory", to_json(memory_use(engine.pipeline()))},
                                                     {"line", line}}));
    return;
  }
  std::vector<std::string> heads = {"tokens"};
  for (const double depth : args.depths) heads.push_back(fmt::format("at {:g} %", 100 * depth));
  Table table(heads, 0);
  for (size_t l = 0; l < args.lengths.size(); ++l) {
    std::vector<std::string> row = {std::to_string(args.lengths[l])};
    for (size_t d = 0; d < args.depths.size(); ++d) {
      const Cell& cell = found.cells[l * args.depths.size() + d];
      row.push_back(fmt::format("{} of {}", cell.found, cell.tries));
    }
    table.row(row);
  }
  fmt::print("{}found {} of {}, {:.1f} % {}, mean log-likelihood of a number {:.3f}, {:.1f} tok/s\n{}\n", table.text(),
             hits, tries, 100 * static_cast<double>(hits) / static_cast<double>(tries),
             interval_text({100 * share.low, 100 * share.high}, 1), mean, speed, line);
}

int run(const Args& args) {
  interruption();
  const std::string text = text_of_file(args.text_file);
  const uint32_t longest = *std::max_element(args.lengths.begin(), args.lengths.end());
  const std::unique_ptr<TracedEngine> traced_engine = open_scoring(args.pipeline, longest);
  Engine& engine = traced_engine->engine();
  const std::vector<int32_t> tokens = engine.tokenizer().encode(text, {.add_special = false});
  // A length that cannot be made is refused before anything is loaded.
  for (const uint32_t length : args.lengths) haystack(engine.tokenizer(), tokens, {length, 0, hidden_number(0)});
  traced_engine->load();
  const Search found = search(engine, tokens, args);
  if (found.tokens > 0) print(args, engine, found);
  return end_scoring(*traced_engine, found.complete);
}

}  // namespace

Run add_retrieval(CLI::App& eval) {
  CLI::App* command = eval.add_subcommand(
      "retrieval",
      "Whether a number is found that a text hides. A sentence with a number of five digits stands at a depth (0: the "
      "beginning, 1: the end) of the text's first tokens, and at the end the model is asked for it. The number is "
      "found "
      "if each of its tokens is the likeliest at its place. Printed: how often, by length and depth, and how likely "
      "the "
      "number was, which tells caches apart before the first number is lost. All runs hide the same numbers.");
  auto args = std::make_shared<Args>();
  args->pipeline.add_to(*command);
  command->add_option("--text", args->text_file, "The text, a file")->required();
  command
      ->add_option("--lengths", args->lengths,
                   "Tokens of a text with number and question; the largest is also "
                   "kv_cache.capacity unless --set says it")
      ->check(CLI::Range(2U, 1U << 20))
      ->capture_default_str();
  command->add_option("--depths", args->depths, "Where the number stands")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--tries", args->tries, "Numbers for each length and depth")
      ->check(CLI::Range(1U, 10000U))
      ->capture_default_str();
  command->add_flag("--json", args->json, "As JSON");
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
