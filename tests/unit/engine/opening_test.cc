// An engine that is opened and loaded: what is refused, what is said, and how much memory it takes.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "small_engine.h"

namespace tenon {
namespace {

using testing::HasSubstr;

// Returns the locked memory of the process in kB.
uint64_t locked_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    uint64_t kb = 0;
    if (word == "VmLck:" && status >> kb) return kb;
  }
  return 0;
}

TEST(Weights, AreLockedInMemoryOrTheLimitIsNamed) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers ignore mlock";
#endif
  for (const char* scheme : {"gguf", "int8wo"}) {  // the one is mapped, the other allocated
    const auto engine = open(kTiny, {"weights.lock=true", std::string("quantization.use=") + scheme});
    try {
      engine->load();
      EXPECT_GE(locked_memory(), 64u);
      EXPECT_EQ(engine->generate(request(prompt(5), 5)).tokens.size(), 5u);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), testing::AllOf(HasSubstr("weights.lock"), HasSubstr("ulimit -l")));
    }
  }
  EXPECT_EQ(locked_memory(), 0u);
}

class Plan : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(Plan, EqualsTheAllocatorsHighWaterMarkToTheByte) {
  const auto [model, scheme] = GetParam();
  const auto engine = open(model == std::string("tiny") ? kTiny : model, {std::string("quantization.use=") + scheme});
  EXPECT_EQ(engine->pipeline().high_water(), 0u);
  engine->load();
  EXPECT_EQ(engine->pipeline().high_water(), engine->pipeline().plan().peak());
  EXPECT_EQ(engine->pipeline().allocated(), engine->pipeline().plan().resident());
  engine->generate(request(prompt(20), 20));
  EXPECT_EQ(engine->pipeline().high_water(), engine->pipeline().plan().peak());
}

INSTANTIATE_TEST_SUITE_P(Schemes, Plan,
                         testing::Combine(testing::Values("tiny", "synthetic:stories15m"),
                                          testing::Values("none", "gguf", "int8wo", "int4wo")));

TEST(Engine, APlanThatDoesNotFitIsRefusedBeforeAnythingIsAllocated) {
  const auto engine = open("synthetic:llama-2-7b", {"kv_cache.capacity=400000"});
  EXPECT_THAT(error_of([&] { engine->load(); }, ErrorCode::kMemory), HasSubstr("a smaller kv_cache.capacity"));
  EXPECT_EQ(engine->pipeline().high_water(), 0u);
}

TEST(Engine, AnOverrideThatMatchesNothingIsAnError) {
  const auto with = [](const std::string& match) {
    return "quantization.override=[{match = \"" + match + "\", use = \"int8wo\"}]";
  };
  EXPECT_THAT(error_of([&] { open(kTiny, {with("layers.*.mlp.dwon")}); }, ErrorCode::kConfig),
              testing::AllOf(HasSubstr("match = \"layers.*.mlp.dwon\" names no matrix of the model"),
                             HasSubstr("lm_head"), HasSubstr("--set quantization.override:1:")));
  EXPECT_NO_THROW(open(kTiny, {with("layers.*.mlp.down")}));
  EXPECT_NO_THROW(open(kTiny, {with("layers.1.mlp.down"), "model.layers=1"}));
}

// This is said while an engine is opened.
std::vector<std::string> log_of(const std::string& model, const std::vector<std::string>& set,
                                EngineOptions options = {}) {
  std::vector<std::string> lines;
  options.log = [&](uint32_t level, const std::string& text) { lines.push_back(std::to_string(level) + " " + text); };
  open(model, set, options);
  return lines;
}

TEST(Engine, ACapacityAboveTheModelsContextIsSaid) {
  EXPECT_THAT(log_of("synthetic:stories15m", {"kv_cache.capacity=256"}), testing::IsEmpty());
  EXPECT_THAT(
      log_of("synthetic:stories15m", {"kv_cache.capacity=257"}),
      testing::ElementsAre(testing::StartsWith(
          "2 kv_cache.capacity is 257 tokens, the model's context 256: the model was not made for what comes after")));
  EXPECT_THAT(log_of("synthetic:stories15m", {"kv_cache.capacity=257", "model.context=512"}), testing::IsEmpty());
}

TEST(Engine, AFolderOfPluginsIsThereAndWhatIsBrokenInItIsSaid) {
  const std::string folder = testing::TempDir() + "broken-plugins";
  EXPECT_THAT(error_of([&] { open(kTiny, {}, {.plugin_dirs = {folder}}); }, ErrorCode::kPlugin),
              testing::AllOf(HasSubstr(folder), HasSubstr("No such file or directory")));
  std::filesystem::create_directory(folder);
  std::filesystem::permissions(folder, std::filesystem::perms::group_write | std::filesystem::perms::others_write,
                               std::filesystem::perm_options::remove);
  EXPECT_THAT(log_of(kTiny, {}, {.plugin_dirs = {folder}}), testing::IsEmpty());
  std::ofstream(folder + "/mine.cpu.so") << "no library";
  EXPECT_THAT(log_of(kTiny, {}, {.plugin_dirs = {folder}}),
              testing::ElementsAre(
                  testing::AllOf(testing::StartsWith("2 refused: "), HasSubstr("mine.cpu.so: is no ELF file"))));
  EXPECT_THAT(error_of([&] { open(kTiny, {}, {.plugin_dirs = {folder + "/mine.cpu.so"}}); }, ErrorCode::kPlugin),
              HasSubstr("it is a file"));
  std::filesystem::remove_all(folder);
}

TEST(Engine, AFolderOfTheVariableThatIsNotThereIsSaid) {
  const std::string folder = testing::TempDir() + "no-such-folder-of-plugins";
  setenv("TENON_PLUGIN_PATH", folder.c_str(), 1);
  EXPECT_THAT(log_of(kTiny, {}),
              testing::ElementsAre("2 refused: " + folder + ": no folder to search for plugins is there"));
  unsetenv("TENON_PLUGIN_PATH");
  EXPECT_THAT(log_of(kTiny, {}), testing::IsEmpty());
}

TEST(Engine, WhatTheDeviceCannotDoIsRefused) {
  EXPECT_THAT(error_of([] { open(kTiny, {"pipeline.execution=graph"}); }, ErrorCode::kConfig),
              HasSubstr("device.cpu captures no graphs"));
  EXPECT_THAT(error_of([] { open(kTiny, {"device.index=1"}); }, ErrorCode::kConfig), HasSubstr("expected 0"));
  EXPECT_NO_THROW(open(kTiny, {"pipeline.execution=graph", "pipeline.strict=false"}));
}

}  // namespace
}  // namespace tenon
