// One thing is changed in folders that others have quantized: a refusal names the file and the key or the tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "golden_files.h"
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

// A matrix that config.json lists as plain must not have codes; one that is plain and not listed runs as it is, as every
// other test's head does.
TEST(PublishedFolders, AreRefusedWhereAListContradictsTheTensors) {
  const auto refusal = [](const std::string& model, const std::string& before, const std::string& after) {
    return PublishedFolder(model).says(before, after).error();
  };
  const auto names = [](const std::string& key, const std::string& matrix) {
    return ::testing::AllOf(
        HasSubstr("config.json: quantization_config." + key + " is "),
        HasSubstr("expected no name that means matrix \"" + matrix + "\": such a matrix stays plain"));
  };
  const std::string down = "model.layers.0.mlp.down_proj", q = "model.layers.0.self_attn.q_proj";
  EXPECT_THAT(
      refusal("tiny-bnb-nf4", "\"llm_int8_skip_modules\": null", "\"llm_int8_skip_modules\": [\"a\", \"down_proj\"]"),
      names("llm_int8_skip_modules.1", down));
  EXPECT_THAT(refusal("tiny-bnb-int8", "\"llm_int8_skip_modules\": null", "\"llm_int8_skip_modules\": [\"down_proj\"]"),
              names("llm_int8_skip_modules.0", down));
  EXPECT_THAT(refusal("tiny-ct-int4", "\"lm_head\"", R"("re:.*\\.mlp\\.down_p")"), names("ignore.0", down));
  EXPECT_THAT(refusal("tiny-ct-w8a8", "\"lm_head\"", "\"" + down + "\""), names("ignore.0", down));
  EXPECT_THAT(refusal("tiny-hqq", "\"lm_head\"", "\"model.layers.0.self_attn\""), names("skip_modules.0", q));
  const std::string list = "\"modules_to_not_convert\": [\"q_proj\"], ";
  for (const char* model : {"tiny-gptq", "tiny-awq", "tiny-fp8-block"}) {
    EXPECT_THAT(refusal(model, "\"quant_method\"", list + "\"quant_method\""), names("modules_to_not_convert.0", q));
  }
  EXPECT_THAT(
      refusal("tiny-torchao-int8", "\"modules_to_not_convert\": null", "\"modules_to_not_convert\": [\"q_proj\"]"),
      names("modules_to_not_convert.0", q));
  // Parts of a part are other names, and so is what no expression is. One that could be taken apart in very many ways is
  // an expression like others, and a very long one is none.
  const std::string endless = R"("re:(([a-z._]+)+)+9", "re:)" + std::string(100000, '(') + "\"";
  EXPECT_EQ(refusal("tiny-ct-int4", "\"lm_head\"",
                    R"("proj", "model.layers.0.mlp.down", "re:.*lm_head", "re:(", )" + endless),
            "no error");
}

TEST(PublishedFolders, SayWhichScalesOfXAreNotUsed) {
  const PublishedFolder folder("tiny-ct-fp8-static");
  boost::json::value config = golden::read_json(folder.path() / "config.json");
  config.at_pointer("/quantization_config/config_groups/group_0").as_object()["input_activations"] = nullptr;
  testing::write_file(folder.path() / "config.json", boost::json::serialize(config));
  const auto told = [](const std::filesystem::path& model) {
    std::vector<std::string> warnings;
    EngineOptions options{.config = model.string(), .set = {"kv_cache.capacity=64", "quantization.use=auto"}};
    options.log = [&](uint32_t level, const std::string& text) {
      if (level == kWarning) warnings.push_back(text);
    };
    Engine::open(options)->load();
    return warnings;
  };
  EXPECT_THAT(told(folder.path()), ::testing::ElementsAre(HasSubstr(
                                       "tensor \"model.layers.0.mlp.down_proj.input_scale\" and 6 scales of x like "
                                       "it are not used, since config.json does not say")));
  EXPECT_THAT(told(PublishedFolder("tiny-ct-fp8-static").path()), ::testing::IsEmpty());
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
