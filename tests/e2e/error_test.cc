// These tests look at what goes wrong, with its exit code and what the message has to name.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <ostream>

#include "program.h"

namespace tenon::e2e {
namespace {

struct Mistake {
  std::string name;
  Words words;
  int code;
  Words named;
};

void PrintTo(const Mistake& mistake, std::ostream* out) {
  *out << mistake.name;
}

Words generate(const Words& words) {
  return Words{"generate", kStories, "-p", "<10>", "-n", "4", "--ignore-end"} + words;
}

class Mistakes : public testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreNamed) {
  const Mistake& m = GetParam();
  const Outcome outcome = tenon(m.words);
  EXPECT_EQ(outcome.code, m.code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  for (const std::string& part : m.named)
    EXPECT_NE(outcome.err.find(part), std::string::npos) << '"' << part << "\" in\n" << outcome.err;
}

const std::vector<Mistake> kMistakes = {
    {"Option", generate({"--tempreture", "1"}), 2, {"--tempreture"}},
    {"NoCommand", {}, 2, {"subcommand"}},
    {"Command", {"genrate"}, 2, {"genrate"}},
    {"NoModel", {"generate", "-p", "x"}, 3, {"model.path"}},
    {"MissingModel", {"generate", "none_such.gguf", "-p", "x"}, 7, {"none_such.gguf"}},
    {"MissingPipeline", {"generate", "none_such.toml", "-p", "x"}, 7, {"none_such.toml"}},
    {"MissingPrompt", {"generate", kStories, "-f", "none_such.txt"}, 7, {"none_such.txt"}},
    {"Synthetic", {"generate", "synthetic:none", "-p", "x"}, 5, {"stories15m"}},
    {"Key", generate({"--set", "kv_cache.capcity=8"}), 3, {"capcity", "capacity"}},
    {"Type", generate({"--set", "kv_cache.capacity=many"}), 3, {"--set", "capacity", "many"}},
    {"Range", generate({"--set", "device.threads=-1"}), 3, {"threads", "-1"}},
    {"Component", generate({"--set", "attention.use=flsh"}), 3, {"flsh", "flash", "reference"}},
    {"Memory", generate({"--set", "kv_cache.capacity=1000000000"}), 6, {"kv_cache.capacity"}},
    {"Prompt",
     {"generate", kStories, "--set", "kv_cache.capacity=8", "-p", "<1><2><3><4><5><6><7><8><9>"},
     8,
     {"9 tokens", "holds 8", "kv_cache.capacity"}},
    {"TraceIsADevice", generate({"--trace", "/dev/full"}), 7, {"/dev/full"}},
    {"Trace", {"trace", "check", "none_such.json"}, 7, {"none_such.json"}},
    {"TokenId", {"tokenize", golden("tiny-gqa-untied.gguf"), "--ids", "1 260"}, 8, {"260", "259"}},
};

INSTANTIATE_TEST_SUITE_P(All, Mistakes, testing::ValuesIn(kMistakes),
                         [](const auto& param) { return param.param.name; });

TEST(Errors, OfAPipelineFileAreAllShownWithTheirPlaces) {
  const std::string file = temporary_folder() / "pipeline.toml";
  write_file(file,
             "[model]\npath = \"synthetic:stories15m\"\n\n[kv_cache]\ncapacity = \"big\"\n\n"
             "[attention]\nuse = \"flsh\"\n\n[sampler]\n  sed = 3\n");
  const Outcome outcome = tenon({"generate", file, "-p", "x"});
  EXPECT_EQ(outcome.code, 3);
  for (const char* place : {":5:12: ", ":8:7: ", ":11:3: "})
    EXPECT_NE(outcome.err.find(file + place), std::string::npos) << place << " in\n" << outcome.err;
}

TEST(Errors, OfBrokenSyntaxHaveAPlace) {
  const std::string file = temporary_folder() / "pipeline.toml";
  write_file(file, "[model]\npath = \n");
  const Outcome outcome = tenon({"plan", file});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find(file + ":2:"), std::string::npos) << outcome.err;
}

// The input may be named in any way: by its path, by a link to it, as a file of a model's folder.
TEST(Errors, OfAnOutputThatIsAnInputLeaveTheInput) {
  const std::filesystem::path folder = temporary_folder();
  const std::string model = folder / "m.gguf", link = folder / "link.json", trace = folder / "t.json";
  std::filesystem::copy_file(golden("tiny-gqa-untied.gguf"), model);
  std::filesystem::create_hard_link(model, link);
  std::filesystem::copy(golden("tiny-gqa-untied"), folder / "hf");
  write_file(trace, "{}");
  const std::string before = read_file(model), config = folder / "hf/config.json", settings = read_file(config);
  for (const Words& words :
       std::vector<Words>{{"generate", model, "-p", "x", "-n", "2", "--trace", model},
                          {"generate", model, "-p", "x", "-n", "2", "--trace", link},
                          {"generate", folder / "hf", "-p", "x", "-n", "2", "--trace", config},
                          {"bench", model, "--prompt-tokens", "4", "--new-tokens", "2", "-o", link},
                          {"eval", "perplexity", model, "--text", trace, "--save-logits", trace},
                          {"trace", "merge", trace, trace, "-o", trace}}) {
    const Outcome outcome = tenon(words);
    EXPECT_EQ(outcome.code, 2) << words[0] << ": " << outcome.err;
    EXPECT_NE(outcome.err.find("would be written over"), std::string::npos) << outcome.err;
  }
  EXPECT_TRUE(read_file(model) == before);
  EXPECT_TRUE(read_file(config) == settings);
  EXPECT_EQ(read_file(trace), "{}");
}

// Every command that writes a file asks before it replaces one, in the same words, and does it with --force.
TEST(Errors, OfAnOutputThatIsThereAskForForce) {
  const std::filesystem::path folder = temporary_folder();
  const std::string text = folder / "text", first = folder / "a.json", second = folder / "b.json";
  write_file(text, "One day a bird sat on a wall and saw another bird. The other bird sang.");
  for (const std::string& trace : {first, second}) ASSERT_EQ(tenon(generate({"--trace", trace})).code, 0);
  struct Case {
    Words words;
    std::string output;
  };
  const std::string model = golden("tiny-gqa-untied.gguf");
  const Words bench = {"bench", kStories, "--warmups", "0", "--runs", "1", "--prompt-tokens", "4"};
  const std::vector<Case> cases = {
      {generate({"--trace", folder / "t.json"}), folder / "t.json"},
      {bench + Words{"--new-tokens", "2", "-o", folder / "bench.txt"}, folder / "bench.txt"},
      {bench + Words{"--new-tokens", "2", "--trace", folder / "t.json"}, folder / "t.json"},
      {bench + Words{"--new-tokens", "2,3", "--trace", folder / "s.json"}, folder / "s-2.json"},
      {{"eval", "perplexity", model, "--text", text, "--context", "8", "--save-logits", folder / "base"},
       folder / "base"},
      {{"trace", "merge", first, second, "-o", folder / "both.json"}, folder / "both.json"},
      {{"quantize", model, folder / "out.gguf", "--scheme", "Q8_0"}, folder / "out.gguf"},
  };
  for (const Case& c : cases) {
    write_file(c.output, "mine");
    const Outcome refused = tenon(c.words);
    EXPECT_EQ(refused.code, 2) << c.output << ": " << refused.err;
    EXPECT_EQ(refused.out, "");
    EXPECT_NE(refused.err.find(c.output + ": error: is there already; --force replaces it"), std::string::npos)
        << refused.err;
    EXPECT_EQ(read_file(c.output), "mine");
    const Outcome forced = tenon(c.words + Words{"--force"});
    EXPECT_EQ(forced.code, 0) << forced.err;
    EXPECT_NE(read_file(c.output), "mine") << c.output;
  }
  EXPECT_EQ(tenon(bench + Words{"--new-tokens", "2", "-o", "/dev/null"}).code, 0);
  std::filesystem::create_symlink(folder / "nothing", folder / "link");
  EXPECT_EQ(tenon(bench + Words{"--new-tokens", "2", "-o", folder / "link"}).code, 2);
}

// A file that appears under an output's name while a command runs is not the command's to replace.
TEST(Errors, OfAnOutputThatAppearsMeanwhileLeaveIt) {
  for (const bool force : {false, true}) {
    const std::filesystem::path folder = temporary_folder(), trace = folder / "t.json";
    Running running(generate({"--trace", trace}) + (force ? Words{"--force"} : Words{}));
    running.wait_for_open_file(folder);
    running.signal(SIGSTOP);
    write_file(trace, "mine");
    running.signal(SIGCONT);
    const Outcome outcome = running.finish();
    EXPECT_EQ(outcome.code, force ? 0 : 7) << outcome.err;
    EXPECT_EQ(outcome.err.find("File exists") == std::string::npos, force) << outcome.err;
    EXPECT_EQ(read_file(trace) == "mine", !force);
    EXPECT_FALSE(std::filesystem::exists(trace.string() + ".part"));
  }
  const std::filesystem::path folder = temporary_folder(), rows = folder / "rows";
  Running bench({"bench", kStories, "--prompt-tokens", "4", "--new-tokens", "64", "--runs", "200", "-o", rows});
  bench.wait_for_open_file(folder);
  write_file(rows, "mine");
  bench.interrupt();
  const Outcome outcome = bench.finish();
  EXPECT_EQ(outcome.code, 7) << outcome.err;
  EXPECT_EQ(read_file(rows), "mine");
  EXPECT_FALSE(std::filesystem::exists(rows.string() + ".part"));
}

// The name that an output has while it grows is an output too.
TEST(Errors, OfAPartThatIsAnInputLeaveTheInput) {
  const std::filesystem::path folder = temporary_folder();
  std::filesystem::copy_file(golden("tiny-gqa-untied.gguf"), folder / "u.part");
  const std::string whole = read_file(folder / "u.part");
  const Outcome outcome = tenon({"generate", folder / "u.part", "-p", "x", "-n", "2", "--trace", folder / "u"});
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_TRUE(read_file(folder / "u.part") == whole);
}

TEST(Errors, OfATruncatedModelNameIt) {
  const std::string whole = read_file(golden("tiny-gqa-untied.gguf"));
  const std::string file = temporary_folder() / "half.gguf";
  for (const size_t size : {size_t{0}, size_t{10}, size_t{2000}, whole.size() / 2, whole.size() - 1}) {
    write_file(file, whole.substr(0, size));
    const Outcome outcome = tenon({"generate", file, "-p", "x", "-n", "1"});
    EXPECT_EQ(outcome.code, 5) << size << ": " << outcome.err;
    EXPECT_NE(outcome.err.find("half.gguf"), std::string::npos) << size << ": " << outcome.err;
  }
}

TEST(Errors, OfAModelThatMayNotBeReadNameIt) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const std::filesystem::path file = temporary_folder() / "closed.gguf";
  std::filesystem::copy(golden("tiny-gqa-untied.gguf"), file);
  std::filesystem::permissions(file, std::filesystem::perms::none);
  const Outcome outcome = tenon({"generate", file, "-p", "x"});
  EXPECT_EQ(outcome.code, 7);
  EXPECT_NE(outcome.err.find("closed.gguf"), std::string::npos) << outcome.err;
}

TEST(Errors, OfAFullDiskUnderATraceLeaveTheText) {
  const Outcome plain = tenon(generate({}));
  for (const char* name : {"t.json", "t.json.gz"}) {
    const std::string trace = temporary_folder() / name;
    // 1 KiB or less is all that files may hold: writing fails as on a full disk.
    const Outcome full = tenon_line(
        "trap '' XFSZ; ulimit -f 1; tenon generate synthetic:stories15m -p '<10>' -n 4 "
        "--ignore-end --trace '" +
        trace + "'");
    EXPECT_EQ(full.code, 7) << full.err;
    EXPECT_EQ(full.out, plain.out);
    EXPECT_NE(full.err.find(trace), std::string::npos) << full.err;
    EXPECT_FALSE(std::filesystem::exists(trace));
  }
}

TEST(Errors, OfAFullDiskUnderTheTextEndTheProgram) {
  const Outcome outcome = tenon_line("tenon generate synthetic:stories15m -p '<10>' -n 4 > /dev/full");
  EXPECT_EQ(outcome.code, 7) << outcome.err;
}

}  // namespace
}  // namespace tenon::e2e
