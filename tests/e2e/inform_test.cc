// These commands show something and change nothing.
#include <gtest/gtest.h>

#include "program.h"

namespace tenon::e2e {
namespace {

TEST(Plan, ShowsMemoryAndReasons) {
  const Outcome outcome = tenon({"plan", kStories});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"Who does what", "Memory", "6 layers"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << " in\n" << outcome.out;
  const boost::json::value json = tenon_json({"plan", kStories, "--json"});
  EXPECT_GT(json.at_pointer("/memory/peak").to_number<int64_t>(), 0);
  EXPECT_FALSE(json.at("decisions").as_array().empty());
}

TEST(Plan, WritesAFileThatMeansTheSame) {
  const Outcome first = tenon({"plan", kStories, "--toml", "--set", "quantization.use=int4wo", "--seed", "5"});
  ASSERT_EQ(first.code, 0) << first.err;
  const std::string file = temporary_folder() / "pipeline.toml";
  write_file(file, first.out);
  const Outcome second = tenon({"plan", file, "--toml"});
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(second.out, first.out);
}

TEST(Inspect, ListsWhatIsInstalled) {
  const boost::json::value json = tenon_json({"inspect", "--json"});
  bool found = false;
  for (const boost::json::value& c : json.at("components").as_array())
    found |= c.at("kind").as_string() == "attention" && c.at("name").as_string() == "flash";
  EXPECT_TRUE(found);
  const Outcome text = tenon({"inspect"});
  EXPECT_EQ(text.code, 0);
  EXPECT_NE(text.out.find("flash"), std::string::npos);
}

TEST(Inspect, ShowsAComponentAModelAndAProgram) {
  EXPECT_FALSE(tenon_json({"inspect", "quantization.int4wo", "--json"}).at("parameters").as_array().empty());
  const Outcome model = tenon({"inspect", "--model", golden("tiny-gqa-untied.gguf")});
  EXPECT_EQ(model.code, 0) << model.err;
  EXPECT_NE(model.out.find("blk.0.attn_q.weight"), std::string::npos) << model.out;
  EXPECT_TRUE(tenon_json({"inspect", "--program", kStories, "--json"}).is_object());
}

TEST(Inspect, ShowsWhatASmallOpTakes) {
  const boost::json::value json = tenon_json({"inspect", "op.rope", "--json"});
  const boost::json::array& arguments = json.at("arguments").as_array();
  ASSERT_FALSE(arguments.empty());
  EXPECT_EQ(arguments[0].at("name").as_string(), "table");
  EXPECT_EQ(arguments[0].at("kind").as_string(), "table");
  EXPECT_EQ(arguments[0].at("doc").as_string(), "f32 (positions, rotated / 2, 2) of (cos, sin)");
  const Outcome text = tenon({"inspect", "op.rms_norm"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("arguments\n  weight         vector"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("  eps            number"), std::string::npos) << text.out;
  EXPECT_EQ(tenon({"inspect", "sampler.greedy"}).out.find("arguments"), std::string::npos);
}

TEST(Tokenize, GoesThereAndBack) {
  const std::string text = "The other bird, on the theatre's roof in 1997: \xC3\xA9";
  for (const char* model : {"tiny-gqa-untied", "tiny-gqa-untied.gguf"}) {
    const Outcome ids = tenon({"tokenize", golden(model), "-p", text, "--no-special"});
    ASSERT_EQ(ids.code, 0) << ids.err;
    const Outcome back = tenon({"tokenize", golden(model), "--ids", "-"}, ids.out);
    EXPECT_EQ(back.code, 0) << back.err;
    EXPECT_EQ(back.out, text);
    EXPECT_EQ(tenon({"tokenize", golden(model), "--no-special"}, text).out, ids.out);
  }
}

TEST(Help, IsThereForEveryCommand) {
  for (const char* command :
       {"generate", "chat", "bench", "eval", "plan", "inspect", "quantize", "tokenize", "trace"}) {
    const Outcome outcome = tenon({command, "--help"});
    EXPECT_EQ(outcome.code, 0) << command;
    EXPECT_NE(outcome.out.find("Usage"), std::string::npos) << command;
  }
  EXPECT_NE(tenon({"--help"}).out.find("Exit codes"), std::string::npos);
}

}  // namespace
}  // namespace tenon::e2e
