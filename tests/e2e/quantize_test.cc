// This tests `tenon quantize`: what it writes runs, and what fails leaves nothing.
#include <gtest/gtest.h>

#include "program.h"
#include "support/weights_writer.h"

namespace tenon::e2e {
namespace {

const std::string kModel = golden("tiny-gqa-untied.gguf");

size_t files_in(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

boost::json::value continuation(const std::string& model) {
  return tenon_json(Words{"generate", model, "-p", "The other bird", "-n", "24", "--ignore-end", "--json"} + greedy());
}

TEST(Quantize, WritesFilesThatGenerate) {
  const boost::json::value original = continuation(kModel);
  for (const std::string& scheme : Words{"F32", "F16", "BF16", "Q8_0", "q4_0", "Q4_1", "Q5_0", "Q5_1"}) {
    const std::filesystem::path folder = temporary_folder();
    const std::string out = folder / "out.gguf";
    const Outcome outcome = tenon({"quantize", kModel, out, "--scheme", scheme});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find("bits a weight"), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("kept as floats") != std::string::npos, scheme[0] == 'Q' || scheme[0] == 'q')
        << outcome.err;
    EXPECT_EQ(files_in(folder), 1u);
    const boost::json::value made = continuation(out);
    EXPECT_EQ(made.at("tokens").as_array().size(), 24u) << scheme;
    if (scheme == "F32") {
      EXPECT_EQ(made.at("tokens"), original.at("tokens"));
    }
  }
}

TEST(Quantize, TakesAHuggingFaceFolderToGguf) {
  for (const char* name :
       {"tiny-gqa-untied", "tiny-mha-tied", "tiny-odd", "tiny-linear-scaling", "tiny-llama3-scaling"}) {
    const std::string out = temporary_folder() / "out.gguf";
    const Outcome outcome = tenon({"quantize", golden(name), out, "--scheme", "F32"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(continuation(out).at("tokens"), continuation(golden(name)).at("tokens")) << name;
  }
}

// The model that runs has the weights that the scheme makes while it loads them, to the bit.
TEST(Quantize, WritesFoldersThatRunAsTheirSchemeWould) {
  for (const std::string& input : {kModel, golden("tiny-gqa-untied").string(), golden("tiny-odd").string()}) {
    for (const Words& scheme : {Words{"int8wo"}, Words{"int4wo", "32"}, Words{"int4wo", "64"}, Words{"int4wo", "256"},
                                Words{"nf4"}, Words{"fp4"}, Words{"fp8"}, Words{"uintx", "32"}, Words{"uintx", "8"},
                                Words{"uintx", "40"}, Words{"uintx", "96"}, Words{"fp6"}, Words{"sparse24", "32"}}) {
      const std::filesystem::path parent = temporary_folder(), out = parent / "out";
      Words group, set = {"--set", "quantization.use=" + scheme[0]};
      if (scheme.size() > 1) group = {"--group-size", scheme[1]};
      const Outcome outcome = tenon(Words{"quantize", input, out, "--scheme", scheme[0]} + group);
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_EQ(files_in(parent), 1u);
      const auto run = [&](const std::string& model, const Words& more) {
        return tenon_json(
            Words{"generate", model, "-p", "The other bird", "-n", "24", "--ignore-end", "--json", "--logprobs", "5"} +
            greedy() + set + more);
      };
      const Words converts = scheme.size() > 1 ? Words{"--set", "quantization.group_size=" + scheme[1]} : Words{};
      EXPECT_EQ(run(out, {}).at("tokens"), run(input, converts).at("tokens")) << outcome.err;
    }
  }
}

TEST(Quantize, RefusesGroupsThatASchemeHasNot) {
  const std::filesystem::path folder = temporary_folder(), file = folder / "p.toml";
  const std::string right = "int: 8 to 4096 in steps of 8 weights";
  for (const std::string group : {"12", "4", "4104"}) {
    const Outcome made =
        tenon({"quantize", kModel, folder / "out", "--scheme", "uintx", "--set", "group_size=" + group});
    EXPECT_EQ(made.code, 2);
    EXPECT_NE(made.err.find("uintx.group_size: " + group), std::string::npos) << made.err;
    EXPECT_NE(made.err.find(right), std::string::npos) << made.err;
    write_file(file, "[model]\npath = \"" + kModel + "\"\n[quantization]\nuse = \"uintx\"\ngroup_size = " + group);
    const Outcome planned = tenon({"plan", file});
    EXPECT_EQ(planned.code, 3);
    EXPECT_NE(planned.err.find(file.string() + ":5:14: error: quantization.uintx.group_size: found the int " + group),
              std::string::npos)
        << planned.err;
    EXPECT_NE(planned.err.find(right), std::string::npos) << planned.err;
  }
}

// In the forms of other programs matrices lose as little as with a scale a row;
// embeddings and the head stay as they were.
TEST(Quantize, WritesPublishedFormsOfFp8) {
  const std::filesystem::path folder = temporary_folder();
  const std::string text = folder / "text", base = folder / "base", model = golden("tiny-gqa-untied");
  write_file(text,
             "The other bird sat on the wall and saw the other bird. One day the wall was gone, and the bird too.");
  (void)tenon_json({"eval", "perplexity", model, "--text", text, "--context", "32", "--save-logits", base, "--json"});
  const auto loss = [&](const std::string& of, const std::string& use) {
    return tenon_json({"eval", "kld", of, "--text", text, "--base", base, "--set", "quantization.use=" + use, "--json"})
        .at("kld")
        .at("mean")
        .to_number<double>();
  };
  const double by_row = loss(model, "fp8");
  const std::map<std::string, std::string> tensors = {{"block", "weight f8e4m3, weight_scale_inv f32"},
                                                      {"tensor", "weight f8e4m3, weight_scale f32"}};
  for (const auto& [scales, stored] : tensors) {
    const std::string out = folder / scales;
    const Outcome made = tenon({"quantize", model, out, "--scheme", "fp8", "--set", "scales=" + scales});
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_NE(made.err.find("leaves embeddings and the head as they are"), std::string::npos) << made.err;
    const Outcome plan = tenon({"plan", out, "--set", "quantization.use=auto"});
    EXPECT_NE(plan.out.find("quantization.fp8 from " + stored), std::string::npos) << plan.out;
    const double lost = loss(out, "auto");
    EXPECT_GT(lost, by_row / 10);
    EXPECT_LT(lost, by_row * 4);
  }
}

TEST(Quantize, NamesTheSchemeThatReadsAFolder) {
  const std::filesystem::path out = temporary_folder() / "out";
  ASSERT_EQ(tenon({"quantize", kModel, out, "--scheme", "int4wo", "--override", "lm_head*=int8wo"}).code, 0);
  const Outcome plain = tenon({"generate", out, "-p", "x", "-n", "1"});
  EXPECT_NE(plain.code, 0);
  EXPECT_NE(plain.err.find("quantization.use = \"int4wo\""), std::string::npos) << plain.err;
  const Outcome head = tenon({"generate", out, "-p", "x", "-n", "1", "--set", "quantization.use=int4wo"});
  EXPECT_NE(head.err.find("lm_head"), std::string::npos) << head.err;
  EXPECT_NE(head.err.find("quantization.use = \"int8wo\""), std::string::npos) << head.err;
  const Outcome both = tenon({"generate", out, "-p", "x", "-n", "1", "--set", "quantization.use=int4wo", "--set",
                              "quantization.override=[{match = \"lm_head\", use = \"int8wo\"}]"});
  EXPECT_EQ(both.code, 0) << both.err;
  const Outcome found = tenon({"generate", out, "-p", "x", "-n", "1", "--set", "quantization.use=auto"});
  EXPECT_EQ(found.code, 0) << found.err;
  EXPECT_EQ(found.out, both.out);
  const Outcome plan = tenon({"plan", out, "--set", "quantization.use=auto"});
  EXPECT_NE(plan.out.find("quantization.int4wo from weight u8, weight_scale bf16"), std::string::npos) << plan.out;
}

// Core has never heard of this scheme: a model is quantized with a text, loaded by the scheme's own name and by "auto",
// and run.
TEST(Quantize, CalibratesAStrangersScheme) {
  const std::filesystem::path folder = temporary_folder(), out = folder / "out";
  const Words plugins = {"--plugin-dir", TENON_SCHEME_TEST_PLUGINS};
  write_file(folder / "text", "The other bird sat on the wall and saw the other bird. One day the wall was gone.");
  const Outcome made = tenon(Words{"quantize", kModel, out, "--scheme", "seen", "--calibrate", folder / "text",
                                   "--context", "16", "--max-windows", "2", "--set", "strength=0.25"} +
                             plugins);
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_NE(made.err.find("16 seen"), std::string::npos) << made.err;
  const auto run = [&](const std::string& scheme) {
    return tenon_json(Words{"generate", out, "-p", "The other bird", "-n", "8", "--ignore-end", "--json"} + greedy() +
                      plugins + Words{"--set", "quantization.use=" + scheme});
  };
  EXPECT_EQ(run("seen").at("tokens").as_array().size(), 8u);
  EXPECT_EQ(run("auto").at("tokens"), run("seen").at("tokens"));
  const Outcome blind =
      tenon({"quantize", kModel, folder / "more", "--scheme", "int8wo", "--calibrate", folder / "text"});
  EXPECT_EQ(blind.code, 2);
  EXPECT_NE(blind.err.find("does not look at texts"), std::string::npos) << blind.err;
}

TEST(Quantize, TakesOverrides) {
  const std::string out = temporary_folder() / "out.gguf";
  ASSERT_EQ(
      tenon({"quantize", kModel, out, "--scheme", "Q4_0", "--override", "output.weight=Q8_0", "-q"}).err.find("|"),
      std::string::npos);
  const Outcome model = tenon({"inspect", "--model", out});
  EXPECT_NE(model.out.find("q8_0"), std::string::npos) << model.out;
  EXPECT_NE(model.out.find("q4_0"), std::string::npos) << model.out;
}

TEST(Quantize, TakesKeysToIgnoreAsRunsDo) {
  const std::filesystem::path folder = temporary_folder(), model = folder / "own";
  std::filesystem::copy(golden("tiny-gqa-untied"), model);
  boost::json::object config = boost::json::parse(read_file(model / "config.json")).as_object();
  config["auto_map"] = {{"AutoConfig", "own.Config"}};
  write_file(model / "config.json", boost::json::serialize(config));
  const auto quantize = [&](const std::string& out, const std::string& scheme, const Words& more) {
    return tenon(Words{"quantize", model, folder / out, "--scheme", scheme} + more);
  };
  const auto ignore = [](const std::string& keys) { return Words{"--set", "model.ignore_unknown=" + keys}; };
  const Outcome refused = quantize("out.gguf", "F32", {});
  EXPECT_EQ(refused.code, 5) << refused.err;
  EXPECT_NE(refused.err.find("model.ignore_unknown = [\"auto_map"), std::string::npos) << refused.err;
  EXPECT_EQ(quantize("out.gguf", "F32", ignore("[\"auto_map\"]")).code, 0);
  EXPECT_EQ(continuation(folder / "out.gguf").at("tokens"), continuation(golden("tiny-gqa-untied")).at("tokens"));
  // A folder's description goes along as it is, and is asked about again when it runs.
  EXPECT_EQ(quantize("out", "int8wo", ignore("[\"auto_map\"]")).code, 0);
  for (const char* out : {"more.gguf", "more"}) {
    const Outcome misspelled = quantize(out, *(out + 4) == '.' ? "F32" : "int8wo", ignore("[\"auto_mop\"]"));
    EXPECT_EQ(misspelled.code, 5) << misspelled.err;
    EXPECT_NE(misspelled.err.find("\"auto_mop\", and there is no such key"), std::string::npos) << misspelled.err;
  }
  EXPECT_EQ(quantize("more.gguf", "F32", ignore("auto_map")).code, 3);
  EXPECT_EQ(files_in(folder), 3u);
}

TEST(Quantize, RefusesAndLeavesNothing) {
  const std::filesystem::path folder = temporary_folder();
  const std::string out = folder / "out.gguf";
  const auto refused = [&](const Words& words, int code, const std::string& named) {
    const Outcome outcome = tenon(Words{"quantize"} + words);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(named), std::string::npos) << outcome.err;
    EXPECT_EQ(files_in(folder), 0u);
  };
  refused({kModel, out}, 2, "--scheme");
  refused({kModel, out, "--scheme", "Q9"}, 2, "Q4_0");
  refused({kModel, folder / "out.bin", "--scheme", "Q8_0"}, 2, ".gguf");
  refused({kModel, out, "--scheme", "Q8_0", "--override", "output.weight"}, 2, "GLOB=SCHEME");
  refused({kModel, out, "--scheme", "Q8_0", "--override", "no_such*=F16"}, 2, "no_such");
  refused({kModel, out, "--scheme", "int8wo"}, 2, "folder");
  refused({kModel, folder / "out", "--scheme", "int4wo", "--group-size", "48"}, 2, "32, 64, 128, 256");
  refused({kModel, folder / "out", "--scheme", "int4wo", "--override", "lm_head*=Q8_0"}, 2, "format of GGUF");
  refused({kModel, out, "--scheme", "Q8_0", "--override", "output.weight=int8wo"}, 2, "no format of GGUF");
  refused({kStories, out, "--scheme", "Q8_0"}, 5, "made-up");
  refused({folder / "none.gguf", out, "--scheme", "Q8_0"}, 7, "none.gguf");
}

TEST(Quantize, DoesNotReplaceAFolder) {
  const std::filesystem::path parent = temporary_folder(), out = parent / "out";
  std::filesystem::create_directory(out);
  EXPECT_EQ(tenon({"quantize", kModel, out.string() + "/", "--scheme", "int8wo"}).code, 0);  // the folder is empty
  const Outcome again = tenon({"quantize", kModel, out, "--scheme", "int4wo", "--force"});
  EXPECT_EQ(again.code, 2);
  EXPECT_NE(again.err.find("not replaced"), std::string::npos) << again.err;
  EXPECT_EQ(files_in(parent), 1u);
  const Outcome of_quantized = tenon({"quantize", out, parent / "more", "--scheme", "int4wo"});
  EXPECT_EQ(of_quantized.code, 5);
  EXPECT_NE(of_quantized.err.find("quantized already"), std::string::npos) << of_quantized.err;
}

// No file may grow beyond 8 KiB, as on a full disk.
TEST(Quantize, LeavesNothingWhereThereIsNoRoom) {
  for (const char* out : {"out.gguf' --scheme F16", "out' --scheme int8wo"}) {
    const std::filesystem::path folder = temporary_folder();
    const Outcome outcome =
        tenon_line("trap '' XFSZ; ulimit -f 16; tenon quantize '" + kModel + "' '" + folder.string() + "/" + out);
    EXPECT_EQ(outcome.code, 7) << outcome.err;
    EXPECT_NE(outcome.err.find("out"), std::string::npos) << outcome.err;
    EXPECT_EQ(files_in(folder), 0u);
  }
}

// There is a matrix of 1 GB, of which the disk holds nothing.
TEST(Quantize, LeavesNothingWhenItIsInterruptedOrKilled) {
  constexpr uint64_t kRows = 1 << 16, kWidth = 1 << 12;
  const std::filesystem::path folder = temporary_folder(), in = temporary_folder();
  const std::string tensor = tenon::testing::SafetensorsWriter::file(
      R"({"model.embed_tokens.weight":{"dtype":"F32","shape":[65536,4096],"data_offsets":[0,1073741824]}})", "");
  write_file(in / "model.safetensors", tensor);
  std::filesystem::resize_file(in / "model.safetensors", tensor.size() + kRows * kWidth * sizeof(float));
  write_file(in / "config.json", "{}");
  const std::string header = tenon::testing::GgufWriter().tensor("large.weight", 0, {kRows, kWidth}, "").bytes();
  write_file(in / "in.gguf", header);
  std::filesystem::resize_file(in / "in.gguf", header.size() + kRows * kWidth * sizeof(float));
  for (const Words& words : {Words{in / "in.gguf", folder / "out.gguf", "--scheme", "Q4_0"},
                             Words{in, folder / "out", "--scheme", "int4wo"}}) {
    for (const bool killed : {false, true}) {
      Running running(Words{"quantize"} + words);
      running.wait_for_open_file(folder);
      running.signal(killed ? SIGKILL : SIGINT);
      const Outcome outcome = running.finish();
      EXPECT_EQ(outcome.code, killed ? -1 : 130) << outcome.err;
      EXPECT_EQ(files_in(folder), 0u);
    }
  }
}

}  // namespace
}  // namespace tenon::e2e
