// This tests `tenon generate --save-session` and `--load-session`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"

namespace tenon::e2e {
namespace {

using testing::HasSubstr;

const std::string kBeginning = "<10><11><12><13><14><15><16><17>";
const Words kRest = {"-n", "12", "--ignore-end", "--seed", "3"};

Words generate(const std::string& prompt, const Words& more = {}) {
  return Words{"generate", kStories, "-p", prompt} + more;
}

// Saves a session of kBeginning alone.
std::string session() {
  static const std::string path = [] {
    std::string file = temporary_folder() / "session";
    const Outcome outcome = tenon(generate(kBeginning, {"-n", "0", "--save-session", file}));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "\n");
    return file;
  }();
  return path;
}

TEST(Session, TheTextIsTheSameAndThePromptIsNotComputed) {
  for (const std::string& prompt : {kBeginning, kBeginning + "<20><21>"}) {
    const boost::json::value plain = tenon_json(generate(prompt, kRest + Words{"--json"}));
    const boost::json::value loaded =
        tenon_json(generate(prompt, kRest + Words{"--json", "--load-session", session()}));
    EXPECT_EQ(loaded.at("tokens"), plain.at("tokens"));
    EXPECT_EQ(loaded.at("hash"), plain.at("hash"));
    EXPECT_EQ(loaded.at_pointer("/session/loaded/path").as_string(), session());
    const auto used = loaded.at_pointer("/session/loaded/used").to_number<size_t>();
    EXPECT_GE(used + 1, loaded.at_pointer("/session/loaded/tokens").to_number<size_t>());
    EXPECT_EQ(loaded.at_pointer("/stats/reused_tokens").to_number<size_t>(), used);
    EXPECT_EQ(plain.as_object().find("session"), plain.as_object().end());
  }
}

TEST(Session, OneMayBeLoadedAndAnotherSaved) {
  const std::string second = temporary_folder() / "second";
  const Outcome outcome =
      tenon(generate(kBeginning + "<20>", kRest + Words{"--load-session", session(), "--save-session", second}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("tok from the session"));
  const std::string longer = kBeginning + "<20>" + outcome.out.substr(0, outcome.out.size() - 1);
  EXPECT_EQ(tenon(generate(longer, kRest + Words{"--load-session", second})).out, tenon(generate(longer, kRest)).out);
}

TEST(Session, TheLineThatRepeatsARunLoadsIt) {
  const std::string saved = temporary_folder() / "saved";
  const Outcome first =
      tenon(generate(kBeginning, kRest + Words{"--load-session", session(), "--save-session", saved}));
  EXPECT_EQ(first.code, 0) << first.err;
  const std::string line = first.err.substr(first.err.rfind("| tenon ") + 2);
  EXPECT_THAT(line, HasSubstr("--load-session " + session()));
  const Outcome again = tenon_line(line);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.out, first.out);
}

TEST(Session, AFileThatIsThereIsReplacedOnlyByForce) {
  const std::string path = temporary_folder() / "mine";
  write_file(path, "mine");
  const Outcome refused = tenon(generate("<10>", {"-n", "2", "--save-session", path}));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("is there already; --force replaces it"));
  EXPECT_EQ(refused.out, "");
  EXPECT_EQ(read_file(path), "mine");
  EXPECT_EQ(tenon(generate("<10>", {"-n", "2", "--save-session", path, "--force"})).code, 0);
  EXPECT_EQ(tenon(generate("<10>", {"-n", "2", "--load-session", path})).code, 0);
  const Outcome itself = tenon(generate("<10>", {"--load-session", path, "--save-session", path, "--force"}));
  EXPECT_EQ(itself.code, 2);
  EXPECT_THAT(itself.err, HasSubstr("would be written over"));
}

TEST(Session, WhatIsNoSessionOfThisPipelineIsRefusedBeforeAnyText) {
  const std::string damaged = temporary_folder() / "damaged";
  std::string bytes = read_file(session());
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(damaged, bytes);
  const auto refused = [&](const std::string& path, const Words& more, int code, const std::string& text) {
    const Outcome outcome = tenon(generate(kBeginning, more + Words{"--load-session", path}));
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(text));
  };
  refused(damaged, {}, 7, "does not have the checksum");
  write_file(damaged, read_file(session()).substr(0, 1000));
  refused(damaged, {}, 7, "is cut short: it has 1000 bytes of");
  refused(golden("tiny-gqa-untied.gguf"), {}, 7, "this is no session");
  refused(temporary_folder() / "nothing", {}, 7, "No such file");
  refused(session(), {"--set", "kv_cache.use=int8"}, 8, "saved with kv_cache.static");
  refused(session(), {"--set", "quantization.use=int8wo"}, 8, "this pipeline has quantization.int8wo");
  refused(session(), {"--set", "model.layers=2"}, 8, "2 layers");
}

TEST(Session, APromptThatBeginsOtherwiseIsAnError) {
  const Outcome outcome = tenon(generate("<40>", {"--load-session", session()}));
  EXPECT_EQ(outcome.code, 8) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("does not begin as the session"));
}

}  // namespace
}  // namespace tenon::e2e
