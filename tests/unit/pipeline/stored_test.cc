// A file stores matrices in ways that only their schemes know: this tests which scheme gets them, how they are loaded,
// and what is said of those that nobody reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "made_model.h"
#include "tenon/core/error.h"

namespace tenon::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kWidth = 32, kVocab = 48;
const std::vector<int32_t> kPrompt = {3, 7, 11, 40, 2, 2, 19};

template <class T>
std::vector<std::byte> as_bytes(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// This is logits = W x, x the embedding of the token. `head` gives what the file has of W.
using Head = std::function<std::vector<const WeightTensor*>(MadeWeights&)>;
MadeModel looked_up(const Head& head) {
  MadeModel m;
  m.info.vocab = kVocab;
  m.info.width = kWidth;
  m.info.context = 64;
  m.declare = [head](MadeWeights& w, Declarations& declare) -> Record {
    LinearDecl embedding{.matrix = w.matrix("embedding", "embedding", kVocab, kWidth), .columns = kWidth};
    embedding.product = false;
    embedding.lookup = true;
    const LinearId rows = declare.linear(embedding);
    const LinearId product = declare.linear(
        {.matrix = {.path = "lm_head", .name = "head", .tensors = head(w), .rows = kVocab}, .columns = kWidth});
    return [=](StepBuilder& b) { return b.linear(product, b.out_rows(b.embed(rows))); };
  };
  return m;
}

std::vector<uint8_t> some_codes() {
  std::vector<uint8_t> codes(kVocab * kWidth);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 37 % 251);
  return codes;
}

// These are int8wo's own tensors.
std::vector<const WeightTensor*> int8_head(MadeWeights& w) {
  std::vector<float> scales;
  for (int64_t r = 0; r < kVocab; ++r) scales.push_back(0.001F * static_cast<float>(r + 1));
  return {w.add_bytes("head.weight", TENON_I8, {kVocab, kWidth}, as_bytes(some_codes())),
          w.add_bytes("head.weight_scale", TENON_F32, {kVocab}, as_bytes(scales))};
}

void expect_logits(MadeModel& m, const std::vector<std::string>& set,
                   const std::function<double(size_t, size_t)>& weight) {
  const std::vector<Values> got = logits_of(m, kPrompt, 2, set);
  const Values& embedding = m.weights.values("embedding.weight");
  for (size_t r = 0; r < got.size(); ++r) {
    const auto token = static_cast<size_t>(kPrompt[kPrompt.size() - got.size() + r]);
    for (size_t v = 0; v < kVocab; ++v) {
      double want = 0;
      for (size_t i = 0; i < kWidth; ++i) want += weight(v, i) * static_cast<double>(embedding[token * kWidth + i]);
      EXPECT_NEAR(double{got[r][v]}, want, 1e-3) << r << ' ' << v;
    }
  }
}

std::string decision_on(MadeModel& m, const std::string& path, const std::vector<std::string>& set) {
  const auto pipeline = build(m, 4, 1, set);
  for (const Decision& d : pipeline->decisions()) {
    if (d.path == path) return d.text;
  }
  return "";
}

const std::vector<std::string> kAuto = {"quantization.use=auto"};

TEST(AutoScheme, TakesTheOneThatHoldsAMatrixAsItIsStored) {
  MadeModel m = looked_up(&int8_head);
  EXPECT_THAT(decision_on(m, "lm_head", kAuto), HasSubstr("quantization.int8wo from weight i8, weight_scale f32"));
  EXPECT_THAT(decision_on(m, "embedding", kAuto), HasSubstr("quantization.gguf from f32, in place"));
  const std::vector<uint8_t> codes = some_codes();
  expect_logits(m, kAuto, [&](size_t row, size_t i) {
    return static_cast<int8_t>(codes[row * kWidth + i]) * 0.001 * static_cast<double>(row + 1);
  });
}

TEST(AutoScheme, ServesAnOverrideAsWell) {
  MadeModel m = looked_up(&int8_head);
  const std::vector<std::string> set = {"quantization.use=none",
                                        "quantization.override=[{match=\"lm_head\", use=\"auto\"}]"};
  EXPECT_THAT(decision_on(m, "lm_head", set), HasSubstr("quantization.int8wo"));
  EXPECT_THAT(decision_on(m, "embedding", set), HasSubstr("quantization.none"));
}

TEST(AutoScheme, SaysWhatEverySchemeAnswered) {
  const Head strange = [](MadeWeights& w) {
    return std::vector<const WeightTensor*>{
        w.add_bytes("head.qweight", TENON_I32, {4, kVocab}, std::vector<std::byte>(16 * kVocab))};
  };
  EXPECT_THAT(error_of(looked_up(strange), kAuto),
              AllOf(HasSubstr("lm_head: quantization.use = \"auto\" finds no installed scheme that reads the matrix"),
                    HasSubstr("quantization.none: matrix \"head\" is stored as qweight i32 (4, 48)"),
                    HasSubstr("quantization.acme.centred: tensor \"head.codes\" is missing")));
}

TEST(Refusal, NamesTheSchemeThatHoldsTheMatrix) {
  EXPECT_THAT(error_of(looked_up(&int8_head), {"quantization.use=none"}),
              AllOf(HasSubstr("lm_head: quantization.none refuses: matrix \"head\" is stored as weight i8 (48, 32), "
                              "weight_scale f32 (48)"),
                    HasSubstr("quantization.use = \"int8wo\" holds it as it is stored")));
}

TEST(Refusal, NamesTheTensorThatIsDamaged) {
  const Head damaged = [](MadeWeights& w) {
    return std::vector<const WeightTensor*>{
        w.add_bytes("head.weight", TENON_I8, {kVocab, kWidth}, as_bytes(some_codes()))};
  };
  EXPECT_THAT(error_of(looked_up(damaged), {"quantization.use=int8wo"}),
              AllOf(HasSubstr("tensor \"head.weight_scale\" is missing; expected f32 (48)"),
                    HasSubstr("no installed scheme reads it")));
}

TEST(Loading, GivesASchemeItsPassesAndTensorsWithoutRows) {
  const std::vector<uint8_t> codes = some_codes();
  std::vector<float> levels(256);
  for (size_t i = 0; i < levels.size(); ++i) levels[i] = 0.01F * static_cast<float>(i * i % 97) - 0.2F;
  double mean = 0;
  for (const uint8_t c : codes) mean += double{levels[c]} / static_cast<double>(codes.size());
  for (const char* whole : {"false", "true"}) {
    MadeModel m = looked_up([&](MadeWeights& w) {
      return std::vector<const WeightTensor*>{w.add_bytes("head.codes", TENON_U8, {kVocab, kWidth}, as_bytes(codes)),
                                              w.add_bytes("head.levels", TENON_F32, {256}, as_bytes(levels))};
    });
    m.weights.description = R"({"quant_method":"centred"})";
    const std::string override =
        std::string("quantization.override=[{match=\"lm_head\", use=\"acme.centred\", whole=") + whole + "}]";
    expect_logits(m, {override}, [&](size_t row, size_t i) { return double{levels[codes[row * kWidth + i]]} - mean; });
    m.weights.description = "{}";
    EXPECT_THAT(error_of(std::move(m), {override}), HasSubstr("another description"));
  }
}

}  // namespace
}  // namespace tenon::test
