// These tests look at what is wrong with a file or an option: position, what was found, what would be right, the
// nearest name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "fake_schemas.h"
#include "tenon/core/config.h"
#include "tenon/core/registry.h"

namespace tenon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// Returns all findings for the file p.toml over the test's defaults, one a line; "" if there are none.
std::string errors(const std::string& text, const std::vector<std::string>& set = {}, const std::string& model = "m") {
  FakeSchemas schemas;
  try {
    resolve(parse_config({{"default.toml", kTestDefaults}, {"p.toml", text}}, set, model), schemas);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kConfig);
    return e.what();
  }
  return "";
}
std::string set_errors(const std::string& option) {
  return errors("", {option});
}

TEST(ConfigErrors, NoSchemeHasNoParameters) {
  EXPECT_THAT(errors("[quantization]\nuse = \"auto\"\ngroup_size = 64\n"),
              HasSubstr("p.toml:3:1: error: quantization: unknown key \"group_size\""));
}

TEST(ConfigErrors, UnknownKeyNamesTheNearest) {
  EXPECT_EQ(errors("[quantization]\nuse = \"int4wo\"\n  groupsize = 64\n"),
            "p.toml:3:3: error: quantization.int4wo: unknown key \"groupsize\"; did you mean \"group_size\" "
            "(int: 32, 64, 128, 256; default 64)?");
  EXPECT_EQ(
      errors("[kv_cache]\ncapacty = 64\n"),
      "p.toml:2:1: error: kv_cache.static: unknown key \"capacty\"; did you mean \"capacity\" (int: 0 to 2147483647 "
      "tokens; default 0)?");
  EXPECT_EQ(errors("[trace]\nverbosity = 3\n"),
            "p.toml:2:1: error: trace: unknown key \"verbosity\"; it takes \"path\", \"skip_steps\", \"steps\", "
            "\"buffer\", \"slow_step_ms\", \"keep_steps\" and \"kernels\"");
  EXPECT_THAT(errors("[quantization]\noverrides = []\n"), HasSubstr("did you mean \"override\" (an array of tables)?"));
  EXPECT_THAT(errors("[sampler]\nchain = [{use = \"top_k\", K = 1}]\n"),
              StartsWith("p.toml:2:26: error: sampler.top_k: unknown key \"K\""));
}

// Before any device is opened, and with one that this machine may not have.
TEST(ConfigErrors, AComponentForTheCpuOnlyIsRefusedOnCuda) {
  Registry registry;
  const auto add = [&](const char* kind, const char* name, const char* device) {
    registry.add_builtin({kind, name, device, "", nullptr, nullptr, nullptr});
  };
  add("device", "cuda", "cuda");
  add("scheduler", "single", "host");
  std::string file = "[device]\nuse = \"cuda\"\n[scheduler]\nuse = \"single\"\n";
  for (const char* kind : {"attention", "draft", "kv_cache", "quantization"}) {
    add(kind, "plain", "cpu");
    file += std::string("[") + kind + "]\nuse = \"plain\"\n";
  }
  add("sampler", "plain", "cpu");
  add("draft", "hosted", "host");
  file += "[sampler]\nselect = \"plain\"\n";
  RegistrySchemas schemas(registry);
  const auto errors_with = [&](const std::vector<std::string>& set) -> std::string {
    try {
      resolve(parse_config({{"p.toml", file}}, set, "m"), schemas);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const std::string refused = errors_with({});
  for (const char* what :
       {"p.toml:6:7: error: no attention", "p.toml:8:7: error: no draft", "p.toml:10:7: error: no kv_cache",
        "p.toml:12:7: error: no quantization", "p.toml:14:10: error: no sampler"}) {
    EXPECT_THAT(refused, HasSubstr(what + std::string(" named \"plain\" for device cuda: it exists for cpu only;")));
  }
  EXPECT_THAT(errors_with({"draft.use=hosted"}), testing::Not(HasSubstr("draft")));
}

TEST(ConfigErrors, MistypedValuesSayWhatWasFound) {
  EXPECT_EQ(
      errors("[quantization]\nuse = \"int4wo\"\ngroup_size = \"64\"\n"),
      "p.toml:3:14: error: quantization.int4wo.group_size: found the string \"64\", expected int: 32, 64, 128, 256; "
      "default 64");
  EXPECT_THAT(errors("[pipeline]\nstrict = 1\n"), HasSubstr("pipeline.strict: found the int 1, expected bool"));
  EXPECT_THAT(errors("[kv_cache]\ncapacity = 64.0\n"), HasSubstr("found the real 64.0, expected int"));
  EXPECT_THAT(errors("[kv_cache]\nformat = [\"fp16\"]\n"),
              HasSubstr("found an array, expected text: fp16, bf16, fp32"));
  EXPECT_THAT(errors("[kv_cache]\nformat.x = 1\n"), HasSubstr("found a table, expected text"));
  EXPECT_THAT(errors("[trace]\nsteps = 2026-01-01\n"), HasSubstr("found a date, expected int"));
  EXPECT_THAT(errors("[model]\npath = 7\n", {}, ""), HasSubstr("p.toml:2:8: error: model.path: found the int 7"));
}

TEST(ConfigErrors, ValuesOutOfRange) {
  EXPECT_EQ(errors("[quantization]\nuse = \"int4wo\"\ngroup_size = 100\n"),
            "p.toml:3:14: error: quantization.int4wo.group_size: found the int 100, expected int: 32, 64, 128, 256; "
            "default 64");
  EXPECT_EQ(
      errors("[scheduler]\nprefill_rows = 0\n"),
      "p.toml:2:16: error: scheduler.prefill_rows: found the int 0, expected int: 1 to 65536 tokens; default 512");
  EXPECT_THAT(errors("[kv_cache]\nformat = \"fp17\"\n"),
              HasSubstr("found the string \"fp17\", expected text: fp16, bf16, fp32; default \"fp16\"; did you mean "
                        "\"fp16\"?"));
  EXPECT_THAT(errors("[kv_cache]\ncapacity = 9000000000\n"), HasSubstr("found the int 9000000000"));
  EXPECT_THAT(errors("[sampler]\nchain = [{use = \"temperature\", value = nan}]\n"), HasSubstr("found the real nan"));
  EXPECT_THAT(errors("[sampler]\nchain = [{use = \"temperature\", value = 100.5}]\n"), HasSubstr("0 to 100"));
  EXPECT_THAT(errors("[model]\npath = \"a\\u0000b\"\n", {}, ""), HasSubstr("zero byte"));
  EXPECT_THAT(errors("[sampler]\nseed = -1\n"), HasSubstr("expected int: at least 0"));
  EXPECT_THAT(errors("[pipeline]\nexecution = \"graphs\"\n"), HasSubstr("did you mean \"graph\"?"));
}

TEST(ConfigErrors, SectionsAndTheirForms) {
  EXPECT_EQ(errors("[quantisation]\nuse = \"int4wo\"\n"),
            "p.toml:1:2: error: unknown section \"quantisation\"; did you mean \"quantization\"?");
  EXPECT_THAT(errors("[zebra]\n"), HasSubstr("there are \"plugin\", \"pipeline\", \"model\""));
  EXPECT_EQ(errors("strict = true\n"),
            "p.toml:1:1: error: the key \"strict\" is in no section; did you mean pipeline.strict?");
  EXPECT_EQ(errors("kv_cache = \"static\"\n"),
            "p.toml:1:1: error: found the string \"static\", expected the section [kv_cache]; write kv_cache.use = "
            "\"static\"");
  EXPECT_THAT(errors("[[kv_cache]]\n"), HasSubstr("found an array, expected the section [kv_cache]"));
  EXPECT_THAT(errors("[plugin]\npath = \"x\"\n"), HasSubstr("found a table, expected the section [[plugin]]"));
  EXPECT_THAT(errors("[[plugin]]\n"), HasSubstr("p.toml:1:1: error: plugin: \"path\" is missing (text; required)"));
  EXPECT_THAT(errors("plugin = [1]\n"), HasSubstr("plugin: found the int 1, expected a table with \"path\""));
  EXPECT_THAT(errors("[quantization.override]\nmatch = \"a\"\n"), HasSubstr("expected [[quantization.override]]"));
  EXPECT_THAT(errors("[quantization]\noverride = [3]\n"),
              HasSubstr("found the int 3, expected a table with \"match\""));
  EXPECT_THAT(errors("[sampler]\nchain = \"top_k\"\n"), HasSubstr("expected an array of components"));
  EXPECT_THAT(errors("[sampler]\nchain = [4]\n"), HasSubstr("sampler.chain: found the int 4, expected a component"));
  EXPECT_THAT(errors("[sampler]\nuse = \"top_k\"\n"), HasSubstr("sampler: unknown key \"use\""));
}

TEST(ConfigErrors, ComponentsThatAreNotThere) {
  EXPECT_EQ(errors("[attention]\nuse = \"flsh\"\n"),
            "p.toml:2:7: error: no attention named \"flsh\"; did you mean \"flash\"?");
  EXPECT_THAT(errors("[sampler]\nselect = \"gredy\"\n"),
              HasSubstr("p.toml:2:10: error: no sampler named \"gredy\"; did you mean \"greedy\"?"));
  EXPECT_THAT(errors("[attention]\nuse = 3\n"), HasSubstr("attention.use: found the int 3, expected text; required"));
  EXPECT_THAT(errors("[[quantization.override]]\nmatch = \"x\"\n"),
              HasSubstr("\"use\" is missing; installed: \"gguf\", \"int4wo\" and \"int8wo\""));
  EXPECT_THAT(errors("[[quantization.override]]\nuse = \"gguf\"\nmatch = \"\"\n"), HasSubstr("expected a glob"));
  EXPECT_THAT(errors("[model]\nweights = \"ggfu\"\n"),
              HasSubstr("model.weights: found \"ggfu\", expected \"auto\" and \"gguf\"; did you mean \"gguf\"?"));
  EXPECT_THAT(errors("[draft]\nk = 5\n"), HasSubstr("draft: unknown key \"k\""));
}

TEST(ConfigErrors, WhatIsMissing) {
  EXPECT_EQ(errors("[draft]\nuse = \"model\"\n"),
            "p.toml:2:7: error: draft.model: \"path\" is missing (text; required)");
  EXPECT_THAT(errors("", {}, ""), HasSubstr("p.toml: error: model.path is missing: name a Hugging Face folder"));
  FakeSchemas schemas;
  try {
    resolve(parse_config({{"p.toml", ""}}, {}, "m"), schemas);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("p.toml: error: attention: \"use\" is missing; installed: \"flash\""));
    EXPECT_EQ(e.diagnostics().size(), 6u);  // device, quantization, kv_cache, attention, sampler.select, scheduler
  }
  EXPECT_NO_THROW(resolve(parse_config({{"d", kTestDefaults}}, {}), schemas, ModelPath::kOptional));
}

TEST(ConfigErrors, AParameterThatTheSectionHasItself) {
  EXPECT_THAT(set_errors("kv_cache.use=clash"),
              HasSubstr("kv_cache.clash: its parameter \"capacity\" has the name of a key of kv_cache itself"));
}

TEST(ConfigErrors, AllAtOnceInOrderOfPosition) {
  FakeSchemas schemas;
  try {
    resolve(parse_config({{"default.toml", std::string(kTestDefaults) + "slot = 1\n"},
                          {"p.toml", "[trace]\nx = 1\n[pipeline]\nstrict = 0\n[attention]\nuse = \"no_such_thing\"\n"}},
                         {"kv_cache.capacity=-1", "device.isa=avx3"}, "m"),
            schemas);
    FAIL();
  } catch (const Error& e) {
    std::vector<std::string> where;
    for (const Diagnostic& d : e.diagnostics()) where.push_back(d.where.file + ":" + std::to_string(d.where.line));
    EXPECT_THAT(where, ElementsAre("default.toml:14", "p.toml:2", "p.toml:4", "p.toml:6", "--set kv_cache.capacity:1",
                                   "--set device.isa:1"));
  }
}

TEST(ConfigErrors, ManyAreCounted) {
  std::string text = "[model]\n";
  for (int i = 0; i < 150; ++i) text += "key" + std::to_string(i) + " = 1\n";
  EXPECT_THAT(errors(text), HasSubstr("\np.toml: error: 50 more errors"));
}

TEST(ConfigErrors, LongAndOddTextIsShortenedAndEscaped) {
  const std::string message = errors("[model]\n\"" + std::string(5000, 'x') + "\" = 1\n\"a\\nb\" = 1\n");
  EXPECT_LT(message.size(), 600u);
  EXPECT_THAT(message, HasSubstr("unknown key \"a\\u000Ab\""));
}

TEST(ConfigErrors, OptionsHaveColumns) {
  EXPECT_EQ(set_errors("kv_cache.capacity=8k"),
            "--set kv_cache.capacity:1:19: error: kv_cache.capacity: found the string \"8k\", expected int: 0 to "
            "2147483647 tokens; default 0");
  EXPECT_THAT(set_errors("kv_cache.use=statik"), StartsWith("--set kv_cache.use:1:14: error: no kv_cache named"));
  EXPECT_THAT(set_errors("model.path=a\xff"),
              StartsWith("--set model.path:1:13: error: TOML syntax: Encountered invalid utf-8"));
  EXPECT_THAT(
      set_errors("kv_cache.capasity=8"),
      StartsWith("--set kv_cache.capasity:1:10: error: kv_cache.static: unknown key \"capasity\"; did you mean"));
  EXPECT_THAT(set_errors("kvcache.use=static"), HasSubstr("unknown section \"kvcache\"; did you mean \"kv_cache\"?"));
  EXPECT_THAT(set_errors("sampler.chain=[{use = \"top_k\", k = -1}]"), StartsWith("--set sampler.chain:1:36: error:"));
  EXPECT_THAT(set_errors("sampler.chain.0.k=1"), HasSubstr("sampler.chain: found a table, expected an array"));
  EXPECT_THAT(set_errors("seed=1"), HasSubstr("the key \"seed\" is in no section; did you mean sampler.seed?"));
}

TEST(ConfigErrors, OptionsThatAreNone) {
  EXPECT_EQ(set_errors("kv_cache.use"),
            "--set kv_cache.use:1:1: error: found no \"=\" in \"kv_cache.use\", expected section.key=value");
  EXPECT_THAT(set_errors("=3"), HasSubstr("--set :1:1: error: found the key \"\""));
  EXPECT_THAT(set_errors("a b.c=3"), HasSubstr(":1:2: error: found the key \"a b.c\""));
  EXPECT_THAT(set_errors("kv_cache..use=3"), HasSubstr("TOML syntax"));
  EXPECT_EQ(set_errors("kv_cache.use="),
            "--set kv_cache.use:1:14: error: found no value; for an empty string write kv_cache.use=\"\"");
  EXPECT_THAT(set_errors("sampler.chain=[{use = 1]"), StartsWith("--set sampler.chain:1:24: error: TOML syntax"));
  EXPECT_THAT(set_errors("kv_cache.use=\"static"), HasSubstr("TOML syntax"));
  EXPECT_THAT(set_errors("kv_cache.capacity=1\nsampler.seed=2"),
              StartsWith("--set kv_cache.capacity:1:19: error: found more than one key"));
  EXPECT_THAT(set_errors("kv_cache.capacity=1\n[sampler]"), HasSubstr("found more than one key"));
}

TEST(ConfigErrors, Syntax) {
  EXPECT_THAT(errors("[kv_cache]\nuse = \"a\"\nuse = \"b\"\n"), HasSubstr("p.toml:3:"));
  EXPECT_THAT(errors("[kv_cache]\nuse = \"a\"\nuse = \"b\"\n"), HasSubstr("cannot redefine existing string 'use'"));
  EXPECT_THAT(errors("[kv_cache\n"), StartsWith("p.toml:1:10: error: TOML syntax"));
  EXPECT_THAT(errors("[kv_cache]\nuse = static\n"), StartsWith("p.toml:2:"));
  EXPECT_THAT(errors("[kv_cache]\nuse = \"\xff\"\n"), HasSubstr("utf-8"));
  EXPECT_THAT(errors("[model]\ncontext = 99999999999999999999\n"), HasSubstr("not representable in 64 bits"));
  EXPECT_THAT(errors("[model]\n[ =]\n"), StartsWith("p.toml:2:3: error: TOML syntax: expected a key"));
  EXPECT_THAT(errors(std::string("[\0x]", 4)), StartsWith("p.toml:1:2: error: TOML syntax"));
  EXPECT_THAT(errors("\ufeef[model]\n"), StartsWith("p.toml:1:1: error: TOML syntax"));
  // The syntax errors of all layers come together.
  const std::string both = errors("[kv_cache\n", {"kv_cache"});
  EXPECT_THAT(both, HasSubstr("p.toml:1:10"));
  EXPECT_THAT(both, HasSubstr("--set kv_cache:1:1"));
}

TEST(ConfigErrors, DepthIsBounded) {
  std::string dotted, array(100000, '['), quoted;
  for (int i = 0; i < 100000; ++i) {
    dotted += "a.";
    quoted += "\"=\" . ";
  }
  EXPECT_THAT(errors("\n" + dotted + "a = 1\n"), StartsWith("p.toml:2:32: error: a key of more than 16 parts"));
  EXPECT_THAT(errors("[" + dotted + "a]\n"), HasSubstr("more than 16 parts"));
  EXPECT_THAT(errors(quoted + "a = 1\n"), HasSubstr("more than 16 parts"));
  EXPECT_THAT(errors("x = '''\n'''\n" + dotted + "a = 1\n"), StartsWith("p.toml:3:32"));
  EXPECT_THAT(errors("x = " + array), HasSubstr("TOML syntax"));
  EXPECT_THAT(set_errors(dotted + "a=1"), HasSubstr("more than 16 parts"));
  // Dots that make no key are no depth.
  const std::string dots(1000, '.');
  EXPECT_EQ(
      errors("# " + dots + "\n[model]\npath = \"" + dots + "\" # \" " + dots + "\nweights = '''auto'''\n", {}, ""), "");
}

class ConfigFiles : public testing::Test {
 protected:
  std::string read_error(const std::filesystem::path& path, ErrorCode code) {
    try {
      read_config(path);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code);
      return e.what();
    }
    return "";
  }
};

TEST_F(ConfigFiles, ThatCannotBeRead) {
  EXPECT_EQ(read_error("no/such/file.toml", ErrorCode::kIo),
            "no/such/file.toml: error: cannot read the pipeline file: No such file or directory");
  EXPECT_THAT(read_error(testing::TempDir(), ErrorCode::kIo), HasSubstr("Is a directory"));
  EXPECT_THAT(read_error("/dev/zero", ErrorCode::kIo), HasSubstr("it is not a regular file"));
  const auto path = std::filesystem::path(testing::TempDir()) / "tenon_config_size.toml";
  std::ofstream(path) << std::string(size_t{1} << 20U, '#');
  EXPECT_EQ(read_error(path, ErrorCode::kConfig), "");
  std::ofstream(path, std::ios::app) << "#";
  EXPECT_THAT(read_error(path, ErrorCode::kConfig), HasSubstr("more than 1 MiB"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tenon
