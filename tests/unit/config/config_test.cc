// This tests layers, overrides and what comes out of them.
#include "tenon/core/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "fake_schemas.h"

namespace tenon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

PipelineConfig resolved(const std::string& text, const std::vector<std::string>& set = {},
                        const std::string& model = "m.gguf") {
  static FakeSchemas kept;  // values refer to their schemas
  return resolve(parse_config({{"default.toml", kTestDefaults}, {"p.toml", text}}, set, model), kept);
}

ParamValue param(const ComponentConfig& c, const std::string& name) {
  return c.params.get(find_param(c.params.schema(), name));
}

TEST(Config, DefaultsServeAModel) {
  const PipelineConfig c = resolved("");
  EXPECT_TRUE(c.strict);
  EXPECT_EQ(c.execution, Execution::kAuto);
  EXPECT_EQ(c.model.path, "m.gguf");
  EXPECT_EQ(c.model.where.file, "command line");
  EXPECT_EQ(c.model.weights, "auto");
  EXPECT_EQ(c.device.name, "cpu");
  EXPECT_EQ(c.quantization.name, "gguf");
  EXPECT_EQ(c.capacity, 0u);
  EXPECT_EQ(c.seed, 1234u);
  ASSERT_EQ(c.sampler_chain.size(), 2u);
  EXPECT_EQ(c.sampler_chain[0].name, "temperature");
  EXPECT_EQ(param(c.sampler_chain[1], "k"), ParamValue(int64_t{200}));
  EXPECT_EQ(c.sampler_select.name, "categorical");
  EXPECT_FALSE(c.draft.has_value());
  EXPECT_EQ(c.prefill_rows, 512u);
  EXPECT_EQ(c.rest_steps, 0u);
  EXPECT_EQ(c.trace.path, "");
  EXPECT_EQ(c.trace.buffer, 32768u);
}

TEST(Config, FileAndOverridesWinPerKey) {
  const PipelineConfig c = resolved(R"([kv_cache]
capacity = 1024
format = "bf16"
[device]
threads = 3
[trace]
path = "t.json"
skip_steps = 2
)",
                                    {"kv_cache.capacity=2048", "sampler.seed=7", "pipeline.strict=false"});
  EXPECT_EQ(c.capacity, 2048u);
  EXPECT_EQ(param(c.kv_cache, "format"), ParamValue(std::string("bf16")));
  EXPECT_EQ(param(c.device, "threads"), ParamValue(int64_t{3}));
  EXPECT_EQ(param(c.device, "isa"), ParamValue(std::string("auto")));
  EXPECT_EQ(c.seed, 7u);
  EXPECT_FALSE(c.strict);
  EXPECT_EQ(c.trace.path, "t.json");
  EXPECT_EQ(c.trace.skip_steps, 2u);
}

TEST(Config, AnotherComponentDropsTheFormerOnesParametersOnly) {
  const std::string file =
      "[quantization]\nuse = \"int4wo\"\ngroup_size = 128\n"
      "[[quantization.override]]\nmatch = \"lm_head\"\nuse = \"int8wo\"\n"
      "[kv_cache]\ncapacity = 64\n";
  EXPECT_EQ(param(resolved(file).quantization, "group_size"), ParamValue(int64_t{128}));
  const PipelineConfig other = resolved(file, {"quantization.use=gguf", "kv_cache.use=static"});
  EXPECT_EQ(other.quantization.name, "gguf");
  EXPECT_EQ(other.overrides.size(), 1u);
  EXPECT_EQ(other.capacity, 64u);
  // Naming the same one again keeps them, and the order of options does not matter.
  EXPECT_EQ(param(resolved(file, {"quantization.use=int4wo"}).quantization, "group_size"), ParamValue(int64_t{128}));
  for (const auto& set : {std::vector<std::string>{"quantization.use=int4wo", "quantization.group_size=32"},
                          std::vector<std::string>{"quantization.group_size=32", "quantization.use=int4wo"}}) {
    EXPECT_EQ(param(resolved("", set).quantization, "group_size"), ParamValue(int64_t{32}));
  }
}

TEST(Config, ASchemeMayBeLeftToTheFile) {
  const PipelineConfig c =
      resolved("[quantization]\nuse = \"auto\"\n[[quantization.override]]\nmatch = \"lm_head\"\nuse = \"auto\"\n");
  EXPECT_EQ(c.quantization.name, kAutoScheme);
  EXPECT_EQ(c.overrides.at(0).scheme.name, kAutoScheme);
  EXPECT_EQ(c.overrides.at(0).match, "lm_head");
  EXPECT_NE(to_toml(c).find("use = \"auto\""), std::string::npos);
}

TEST(Config, ArraysAreReplacedWhole) {
  const PipelineConfig c = resolved("[sampler]\nchain = [{use = \"top_k\", k = 5, ties = false}]\n", {});
  ASSERT_EQ(c.sampler_chain.size(), 1u);
  EXPECT_EQ(param(c.sampler_chain[0], "k"), ParamValue(int64_t{5}));
  EXPECT_EQ(param(c.sampler_chain[0], "ties"), ParamValue(false));
  EXPECT_EQ(resolved("", {"sampler.chain=[]"}).sampler_chain.size(), 0u);
  const PipelineConfig names = resolved("", {R"(sampler.chain=["top_k", {use = "greedy"}])", "sampler.select=greedy"});
  ASSERT_EQ(names.sampler_chain.size(), 2u);
  EXPECT_EQ(names.sampler_chain[0].name, "top_k");
  EXPECT_EQ(names.sampler_chain[1].name, "greedy");
  EXPECT_EQ(names.sampler_select.name, "greedy");
}

TEST(Config, OverridesTakeBareWordsAndToml) {
  EXPECT_EQ(resolved("", {"model.path=models/7b-#1.gguf"}).model.path, "models/7b-#1.gguf");
  EXPECT_EQ(resolved("", {"model.path=synthetic:llama-2-7b"}).model.path, "synthetic:llama-2-7b");
  EXPECT_EQ(resolved("", {"model.path=a b=c"}).model.path, "a b=c");
  EXPECT_EQ(resolved("", {R"(model.path="with \"quotes\"")"}).model.path, "with \"quotes\"");
  EXPECT_EQ(resolved("", {"kv_cache.capacity = 64"}).capacity, 64u);
  EXPECT_EQ(resolved("", {"trace.path=t.json", "trace.path=\"\""}).trace.path, "");
  EXPECT_EQ(resolved("", {"sampler.chain=[\n  \"top_k\",\n]"}).sampler_chain.size(), 1u);
}

TEST(Config, DraftComesAndGoes) {
  const std::string file = "[draft]\nuse = \"model\"\npath = \"d.gguf\"\nk = 3\n";
  const PipelineConfig c = resolved(file);
  ASSERT_TRUE(c.draft.has_value());
  EXPECT_EQ(param(*c.draft, "path"), ParamValue(std::string("d.gguf")));
  EXPECT_EQ(param(*c.draft, "k"), ParamValue(int64_t{3}));
  EXPECT_EQ(c.draft->where.line, 2u);
  EXPECT_EQ(c.draft->where.column, 7u);
  EXPECT_FALSE(resolved(file, {"draft.use=none"}).draft.has_value());
}

TEST(Config, ComponentsAreLookedUpForTheDevice) {
  FakeSchemas schemas;
  resolve(parse_config({{"d", kTestDefaults}}, {"device.use=gpu"}, "m"), schemas);
  EXPECT_EQ(schemas.asked_devices.front(), "");
  EXPECT_EQ(schemas.asked_devices.back(), "gpu");
}

TEST(Config, PluginsAreThereBeforeComponents) {
  const auto document = parse_config({{"p.toml",
                                       "[[plugin]]\npath = \"a.so\"\n[[plugin]]\nname = 1\n[[plugin]]\npath = 3"
                                       "\n[[plugin]]\npath = \"b.so\""}},
                                     {});
  const std::vector<PluginConfig> plugins = document.plugins();
  ASSERT_EQ(plugins.size(), 2u);
  EXPECT_EQ(plugins[0].path, "a.so");
  EXPECT_EQ(plugins[1].path, "b.so");
  EXPECT_EQ(plugins[1].where.line, 8u);
  EXPECT_EQ(parse_config({{"p.toml", "plugin = 3"}}, {}).plugins().size(), 0u);
}

constexpr const char* kEverything = R"([[plugin]]
path = "x/\"y\".so"
[pipeline]
strict = false
execution = "per_op"
[model]
path = "a \\ \u00e9 \t.gguf"
context = 4096
[device]
index = 1
threads = 2
[quantization]
use = "int4wo"
group_size = 32
[[quantization.override]]
match = "layers.*.attention.qkv"
use = "int8wo"
[[quantization.override]]
match = "lm_head"
use = "int4wo"
group_size = 256
[kv_cache]
capacity = 512
format = "fp32"
[sampler]
seed = 9223372036854775807
chain = [{use = "temperature", value = 1}, {use = "top_k", k = 3, ties = false}]
select = {use = "greedy"}
[draft]
use = "model"
path = "d"
[scheduler]
prefill_rows = 64
rest_steps = 8
[trace]
path = "t.json.gz"
steps = 8
buffer = 1024
)";

TEST(Config, PrintsWhatItReads) {
  FakeSchemas schemas;
  for (const std::string text : {"", kEverything}) {
    const PipelineConfig c = resolved(text, {}, text.empty() ? "m.gguf" : "");
    const std::string printed = to_toml(c);
    const PipelineConfig again = resolve(parse_config({{"printed", printed}}, {}), schemas);
    EXPECT_EQ(to_toml(again), printed);
  }
  const std::string everything = to_toml(resolved(kEverything, {}, ""));
  EXPECT_THAT(everything, HasSubstr("value = 1.0"));
  EXPECT_THAT(everything, HasSubstr("path = \"a \\\\ \u00e9 \\u0009.gguf\""));
}

TEST(Config, OverridesMakeOnePipelineOfAnother) {
  const PipelineConfig base = resolved("");
  EXPECT_THAT(to_overrides(base, base), ElementsAre());
  const std::vector<std::string> some =
      to_overrides(resolved("", {"kv_cache.capacity=64", "quantization.use=int4wo", "kv_cache.format=bf16"}), base);
  EXPECT_THAT(some, ElementsAre("quantization.use=\"int4wo\"", "kv_cache.format=\"bf16\"", "kv_cache.capacity=64"));
  const PipelineConfig everything = resolved(kEverything, {}, "");
  EXPECT_EQ(to_toml(resolved("", to_overrides(everything, base))), to_toml(everything));
  EXPECT_EQ(to_toml(resolved(kEverything, to_overrides(base, everything), "")), to_toml(base));
}

TEST(Config, TellsPipelineFilesFromModels) {
  EXPECT_TRUE(is_pipeline_file("configs/int8.toml"));
  EXPECT_FALSE(is_pipeline_file("model.gguf"));
  EXPECT_FALSE(is_pipeline_file("synthetic:stories15M"));
  EXPECT_FALSE(is_pipeline_file("models/Llama-2-7b-hf"));
}

TEST(Config, InstalledDefaultsServeAnyModel) {
  EXPECT_EQ(default_pipeline_file().filename(), "default.toml");
  const ConfigDocument document = load_config("model.gguf", {});
  FakeSchemas schemas;
  const PipelineConfig c = resolve(document, schemas);
  EXPECT_EQ(c.model.path, "model.gguf");
  EXPECT_TRUE(c.strict);
}

TEST(Config, LoadsAFileOverTheDefaults) {
  const auto path = std::filesystem::path(testing::TempDir()) / "tenon_config_test.toml";
  std::ofstream(path) << "[model]\npath = \"m\"\n[kv_cache]\ncapacity = 77\n";
  FakeSchemas schemas;
  EXPECT_EQ(resolve(load_config(path.string(), {}), schemas).capacity, 77u);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tenon
