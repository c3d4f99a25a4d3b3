// These are the commands that are tried under faults, each as a short run on a tiny model.
#include "commands.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <regex>

#include "../support/zephyr_template.h"

namespace tenon::faults {
namespace {

fs::path golden(const std::string& name) {
  return fs::path(TENON_SOURCE_DIR) / "tests/golden/data" / name;
}

std::string gguf() {
  return golden("tiny-gqa-untied.gguf");
}

// Makes a folder with safetensors and Zephyr's chat template.
std::string folder_model() {
  const fs::path folder = place().inputs / "model";
  if (fs::exists(folder)) return folder;
  fs::create_directory(folder);
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"})
    fs::copy(golden("tiny-gqa-untied") / name, folder / name);
  const boost::json::object tokenizer = {
      {"eos_token", "</s>"}, {"bos_token", "<s>"}, {"chat_template", test::kZephyrTemplate}};
  write_text(folder / "tokenizer_config.json", boost::json::serialize(tokenizer));
  return folder;
}

std::string text_file() {
  return input_file("text.txt",
                    "A machine that has run out of something says so, ends, and leaves what was there as it was.\n");
}

std::string questions_file() {
  return input_file("questions.jsonl",
                    "{\"ctx\": \"A machine says\", \"endings\": [\"so.\", \"no.\"], \"label\": 0}\n");
}

// Returns a file that another command makes, once.
std::string made_by(const std::string& name, const Words& words) {
  const fs::path path = place().inputs / name;
  if (!fs::exists(path)) {
    const Outcome made = run(Words{TENON_PROGRAM} + words + Words{path}, place().inputs, "/dev/null", {});
    EXPECT_EQ(made.code, 0) << made.err;
  }
  return path;
}

// Drops numbers that time decides, such as 12.5 tok/s, and the option that lets an output be replaced.
std::string without_times(const std::string& text) {
  static const std::regex times(R"([0-9][0-9.e+]*( tok/s| s\b| GB/s|,"read_gbps))"), force(" --force\\b");
  return std::regex_replace(std::regex_replace(text, times, "T$1"), force, "");
}

std::string without_json_numbers(const std::string& text) {
  static const std::regex numbers(R"(:[0-9][-0-9.Ee+]*)");
  return std::regex_replace(text, numbers, ":N");
}
std::string same(const std::string& text) {
  return text;
}

const Words kThreads = {"--threads", "2"};

}  // namespace

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
      {.name = "generate_session",
       .words =
           [] {
             return Words{"generate",
                          gguf(),
                          "-p",
                          "Hello there",
                          "-n",
                          "3",
                          "--load-session",
                          made_by("hello.session", {"generate", gguf(), "-p", "Hello", "-n", "0", "--save-session"}),
                          "--save-session",
                          "next.session"} +
                    kThreads;
           },
       .input = "",
       .outputs = {"next.session"},
       .stable_out = same,
       .stable_file = same},
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
      {.name = "eval_choices",
       .words =
           [] {
             return Words{"eval", "choices", gguf(), "--questions", questions_file(), "--context", "64"} + kThreads;
           },
       .input = "",
       .stable_out = without_times},
      {.name = "eval_retrieval",
       .words =
           [] {
             return Words{"eval", "retrieval", gguf(), "--text",  text_file(), "--lengths",
                          "80",   "--depths",  "0.5",  "--tries", "1"} +
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

}  // namespace tenon::faults
