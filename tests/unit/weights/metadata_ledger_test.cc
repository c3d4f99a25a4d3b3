// Nobody reads these keys.
#include "model/weights/metadata_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/weights_writer.h"

namespace tenon::weights {
namespace {

using ::testing::ElementsAre;

auto Says(const std::string& text) {
  return ::testing::Field(&Diagnostic::message, ::testing::HasSubstr(text));
}

TEST(MetadataLedger, APatternHasStarsForAnyText) {
  EXPECT_TRUE(matches("general.name", "general.name"));
  EXPECT_FALSE(matches("general.names", "general.name"));
  EXPECT_TRUE(matches("general.names", "general.name*"));
  EXPECT_TRUE(matches("model.layers.3.self_attn.rotary_emb.inv_freq", "*.rotary_emb.inv_freq"));
  EXPECT_FALSE(matches("model.layers.3.rotary_emb.inv_freq.weight", "*.rotary_emb.inv_freq"));
  EXPECT_TRUE(matches("a.b.c.d", "a.*.c.*"));
  EXPECT_FALSE(matches("a.b", "a.b.*"));
}

TEST(MetadataLedger, NamesTheKeysThatNobodyReads) {
  const testing::ScratchFolder folder;
  testing::GgufWriter gguf;
  gguf.add("general.architecture", "llama").add("general.name", "x").add("tokenizer.ggml.model", "gpt2");
  gguf.add("llama.block_count", uint32_t{1}).add("llama.tensor_data_layout", "Meta AI original pth");
  gguf.add("llama.attention.something_new", 0.5F).add("adapter.type", "lora").add("general.kind", "model");
  const auto weights = open_weights(folder.put("m.gguf", gguf.bytes()));
  const MetadataLedger ledger(*weights);
  EXPECT_EQ(metadata_text(ledger, "general.architecture"), "llama");
  EXPECT_EQ(metadata_int(ledger, "llama.block_count"), 1);
  EXPECT_EQ(metadata_text(ledger, "general.kine"), std::nullopt);
  const std::vector<std::string> kHarmless = {"llama.tensor_*"};
  EXPECT_THAT(ledger.unknown_keys(kHarmless),
              ElementsAre(Says("key \"adapter.type\", found the text \"lora\": the model does not read it, so it "
                               "may change what is computed; expected no such key"),
                          Says("key \"general.kind\", found the text \"model\": the model does not read it, so it "
                               "may change what is computed; did you mean \"general.kine\"?"),
                          Says("key \"llama.attention.something_new\", found the number 0.5")));
}

}  // namespace
}  // namespace tenon::weights
