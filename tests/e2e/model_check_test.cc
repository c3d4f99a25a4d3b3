// This tests `tenon model check`: mistakes in a family's file, models by their family, and the comparison with
// transformers, whose part a script plays here; where Python has transformers, that is asked as well.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "program.h"

namespace tenon::e2e {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int kFailed = 1, kUsage = 2, kConfig = 3, kModel = 5;

const fs::path kLlama = fs::path(TENON_SOURCE_DIR) / "configs/models/llama.toml";

// Writes a program that takes Python's place: it writes so many zeros for each layer and for the logits.
std::string zeros(const fs::path& folder) {
  const fs::path file = folder / "python";
  write_file(file,
             "#!/bin/sh\nfor name in layers.0 layers.1; do head -c 6144 /dev/zero > $4/$name.f32; done\n"
             "head -c 24960 /dev/zero > $4/logits.f32\necho 0.0\n");
  fs::permissions(file, fs::perms::owner_all);
  return file.string();
}

TEST(ModelCheck, NamesAMistakeInAFamily) {
  const fs::path folder = temporary_folder();
  std::string text = read_file(kLlama);
  text.replace(text.find("\"silu_mul\""), 10, "\"silu_mal\"");
  write_file(folder / "llama.toml", text);
  const Words check = {"model", "check", (folder / "llama.toml").string()};
  EXPECT_EQ(tenon(check).code, 0);  // whether an op is installed is known with a model
  const Outcome unknown = tenon(check + Words{"--model", golden("tiny-gqa-untied").string()});
  EXPECT_NE(unknown.code, 0);
  EXPECT_THAT(unknown.err, HasSubstr("silu_mal"));
  write_file(folder / "llama.toml", "[model]\nname = \"llama\"\n" + text.substr(text.find("[numbers]")));
  const Outcome o = tenon(check);
  EXPECT_EQ(o.code, kConfig);
  EXPECT_THAT(o.err, HasSubstr("model: key \"claims\" is missing"));
}

TEST(ModelCheck, TakesAFamilyOrAModel) {
  const Outcome family = tenon({"model", "check", kLlama.string()});
  EXPECT_EQ(family.code, 0) << family.err;
  EXPECT_THAT(family.out, HasSubstr("llama.toml: no mistake was found"));
  const std::string model = golden("tiny-gqa-untied").string();
  const Outcome plain = tenon({"model", "check", model, "--python", "/no/python"});
  EXPECT_EQ(plain.code, 0) << plain.err;
  EXPECT_THAT(plain.out,
              HasSubstr("architecture llama, 2 layers, 260 tokens of vocabulary; every key and tensor is read"));
  EXPECT_THAT(plain.out, HasSubstr("not compared with transformers: "));
  EXPECT_EQ(tenon({"model", "check", model, "--model", model}).code, kUsage);
}

TEST(ModelCheck, AKeyThatNobodyReadsIsNamed) {
  const fs::path folder = temporary_folder();
  fs::copy(golden("tiny-gqa-untied"), folder, fs::copy_options::recursive);
  const std::string config = read_file(folder / "config.json");
  write_file(folder / "config.json", "{\"clip_qkv\": 8.0," + config.substr(config.find('{') + 1));
  const Outcome o = tenon({"model", "check", folder.string()});
  EXPECT_EQ(o.code, kModel);
  EXPECT_THAT(o.err, HasSubstr("clip_qkv"));
}

TEST(ModelCheck, TheFirstLayerThatDiffersIsNamed) {
  const Outcome o =
      tenon({"model", "check", golden("tiny-gqa-untied").string(), "--python", zeros(temporary_folder())});
  EXPECT_EQ(o.code, kFailed) << o.err;
  EXPECT_THAT(o.out, HasSubstr("largest difference to transformers 0.0"));
  EXPECT_THAT(o.out, HasSubstr("not equal to 0.0001: layers.0 is the first that differs"));
}

TEST(ModelCheck, ModelsAreThoseOfTransformers) {
  if (std::system("python3 -c 'import torch, transformers' 2>/dev/null") != 0) {
    GTEST_SKIP() << "Python has no torch or no transformers";
  }
  for (const char* model : {"tiny-gqa-untied", "tiny-gemma2", "tiny-phi3"}) {
    const Outcome o = tenon({"model", "check", golden(model).string()});
    EXPECT_EQ(o.code, 0) << o.out << o.err;
    EXPECT_THAT(o.out, HasSubstr("equal to 0.0001"));
  }
}

}  // namespace
}  // namespace tenon::e2e
