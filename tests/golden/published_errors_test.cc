// One thing is changed in folders that others have quantized: a refusal names the file and the key or the tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/pipelines.h"
#include "support/weights_writer.h"
#include "tenon/core/engine.h"
#include "tenon/core/weights.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;

// This is a copy of a checkpoint of the golden data.
class PublishedFolder {
 public:
  explicit PublishedFolder(const std::string& name) {
    std::filesystem::copy(test::root() / "tests/golden/data" / name, path());
  }
  std::filesystem::path path() const { return scratch_.path() / "model"; }
  // A text of config.json becomes another one.
  PublishedFolder& says(const std::string& before, const std::string& after) {
    std::ifstream in(path() / "config.json");
    std::string text(std::istreambuf_iterator<char>(in), {});
    const size_t at = text.rfind(before);
    EXPECT_NE(at, std::string::npos) << before;
    testing::write_file(path() / "config.json", text.replace(at, before.size(), after));
    return *this;
  }
  // The first byte of a tensor becomes another one.
  void damage(const std::string& tensor, char byte) const {
    const auto weights = open_weights(path().string());
    const WeightTensor* t = weights->find(tensor);
    ASSERT_NE(t, nullptr) << tensor;
    std::fstream file(weights->files().at(t->file), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(t->offset));
    file.put(byte);
  }
  std::string error() const {
    try {
      const auto engine =
          Engine::open({.config = path().string(), .set = {"kv_cache.capacity=64", "quantization.use=auto"}});
      engine->load();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }

 private:
  testing::ScratchFolder scratch_;
};

TEST(PublishedFolders, AreRefusedWithTheKeyThatIsNotUnderstood) {
  const auto key = [](const std::string& what) { return HasSubstr("config.json: quantization_config." + what); };
  EXPECT_THAT(PublishedFolder("tiny-gptq").says("\"bits\": 4", "\"bits\": 5").error(),
              key("bits is 5; expected 2 or 3"));
  EXPECT_THAT(PublishedFolder("tiny-gptq").says("\"sym\": false", "\"twist\": 3").error(),
              key("twist is 3; expected no"));
  EXPECT_THAT(PublishedFolder("tiny-awq").says("\"gemm\"", "\"gemv\"").error(), key("version is \"gemv\"; expected"));
  EXPECT_THAT(PublishedFolder("tiny-ct-int4").says("\"kv_cache_scheme\": null", "\"kv_cache_scheme\": {}").error(),
              key("kv_cache_scheme is an object; expected no such key"));
  EXPECT_THAT(PublishedFolder("tiny-ct-w8a8").says("\"dynamic\": true", "\"dynamic\": false").error(),
              key("config_groups.group_0.input_activations.dynamic is false; expected true: each row of x gets its"));
  EXPECT_THAT(PublishedFolder("tiny-bnb-int8").says("\"load_in_8bit\": true", "\"load_in_8bit\": 1").error(),
              key("load_in_8bit is 1; expected true or false"));
  EXPECT_THAT(PublishedFolder("tiny-gptq").says("\"quant_method\": \"gptq\"", "\"quant_method\": \"spqr\"").error(),
              key("quant_method is \"spqr\"; expected"));
}

TEST(PublishedFolders, AreRefusedWithTheTensorThatIsDamaged) {
  const PublishedFolder gptq("tiny-gptq");
  EXPECT_EQ(gptq.error(), "no error");
  const std::string place = "model.layers.1.mlp.up_proj.";
  gptq.damage(place + "g_idx", 7);
  EXPECT_THAT(gptq.error(), HasSubstr("tensor \"" + place + "g_idx\": column 0 is of group 7; there are 2"));
}

TEST(PublishedFolders, MayHaveBiasesOfZerosAndNoOthers) {
  const PublishedFolder folder("tiny-gptq");
  folder.damage("model.layers.0.self_attn.o_proj.bias", 1);
  EXPECT_THAT(folder.error(),
              HasSubstr("tensor \"model.layers.0.self_attn.o_proj.bias\" is f16 (64): the model computes "
                        "nothing with it"));
}

}  // namespace
}  // namespace tenon
