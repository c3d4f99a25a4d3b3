// Tensors of all experts are seen as a tensor for each: which numbers each of them has, wherever reading begins, and
// what cannot be cut.
#include "model/weights/cut_weights.h"

#include <gtest/gtest.h>

#include <numeric>

#include "expect_error.h"
#include "support/weights_writer.h"

namespace tenon::weights {
namespace {

using testing::expect_error;
using testing::ScratchFolder;

constexpr int kExperts = 3, kRows = 4, kColumns = 5;  // each matrix has these; two of them are in a tensor

// Returns a number that says whose it is.
float number(int expert, int part, int row, int column) {
  return static_cast<float>(1000 * expert + 100 * row + 10 * column + part);
}

class CutTensors : public ::testing::Test {
 protected:
  // The rows of two matrices come in turns; and the same transposed.
  void SetUp() override {
    std::vector<float> plain, transposed;
    for (int e = 0; e < kExperts; ++e) {
      for (int r = 0; r < kRows; ++r) {
        for (int p = 0; p < 2; ++p) {
          for (int c = 0; c < kColumns; ++c) plain.push_back(number(e, p, r, c));
        }
      }
      for (int c = 0; c < kColumns; ++c) {
        for (int r = 0; r < kRows; ++r) {
          for (int p = 0; p < 2; ++p) transposed.push_back(number(e, p, r, c));
        }
      }
    }
    const auto bytes = [](const std::vector<float>& values) { return testing::bytes_of(values); };
    testing::SafetensorsWriter writer;
    writer.tensor("x_rows", "F32", {kExperts, 2 * kRows, kColumns}, bytes(plain));
    writer.tensor("x", "F32", {kExperts, kColumns, 2 * kRows}, bytes(transposed));
    writer.tensor("other", "F32", {2}, bytes({1, 2}));
    folder_.put("config.json", "{}");
    file_ = open_weights(folder_.put("model.safetensors", writer.bytes()));
  }
  std::vector<float> all(const Weights& model, const std::string& name) const {
    const WeightTensor* t = model.find(name);
    EXPECT_NE(t, nullptr) << name;
    if (t == nullptr) return {};
    std::vector<float> values(t->bytes / sizeof(float));
    model.read(*t, 0, std::as_writable_bytes(std::span(values)));
    return values;
  }

  ScratchFolder folder_;
  std::unique_ptr<Weights> file_;
  const Cut rows_{"x_rows", "y", "rows", {"gate", "up"}}, columns_{"x", "y", "weight", {"gate", "up"}, true};
};

TEST_F(CutTensors, EachExpertHasTheRowsOfItsPart) {
  const CutWeights cut(*file_, {rows_, columns_});
  for (int e = 0; e < kExperts; ++e) {
    for (int p = 0; p < 2; ++p) {
      std::vector<float> expected;
      for (int r = 0; r < kRows; ++r) {
        for (int c = 0; c < kColumns; ++c) expected.push_back(number(e, p, r, c));
      }
      const std::string stem = "y." + std::to_string(e) + (p == 0 ? ".gate" : ".up");
      for (const char* suffix : {".rows", ".weight"}) {
        EXPECT_EQ(all(cut, stem + suffix), expected) << stem << suffix;
        EXPECT_EQ(cut.find(stem + suffix)->shape, (std::vector<int64_t>{kRows, kColumns}));
      }
    }
  }
  EXPECT_EQ(cut.find("x"), nullptr);
  EXPECT_EQ(cut.find("y.3.gate.weight"), nullptr);
  EXPECT_EQ(all(cut, "other"), (std::vector<float>{1, 2}));
  EXPECT_EQ(cut.tensors().size(), size_t{2 * 2 * kExperts + 1});
}

TEST_F(CutTensors, AnyBytesOfAPartCanBeRead) {
  const CutWeights cut(*file_, {rows_, columns_});
  for (const char* name : {"y.2.up.rows", "y.2.up.weight"}) {
    const WeightTensor& t = *cut.find(name);
    std::vector<std::byte> whole(t.bytes);
    cut.read(t, 0, whole);
    for (uint64_t begin = 0; begin < t.bytes; begin += 7) {
      for (uint64_t size = 1; begin + size <= t.bytes; size += 11) {
        std::vector<std::byte> some(size);
        cut.read(t, begin, some);
        const auto from = whole.begin() + static_cast<ptrdiff_t>(begin);
        EXPECT_TRUE(std::equal(some.begin(), some.end(), from)) << name << " " << begin << " " << size;
      }
    }
  }
}

TEST_F(CutTensors, OnesWithoutPartsAreUsedInPlace) {
  const CutWeights cut(*file_, {{"x_rows", "y", "rows"}});
  const WeightTensor& t = *cut.find("y.1.rows");
  EXPECT_EQ(t.shape, (std::vector<int64_t>{2 * kRows, kColumns}));
  ASSERT_NE(cut.mapped(t), nullptr);
  EXPECT_EQ(cut.mapped(t), file_->mapped(*file_->find("x_rows")) + t.bytes);
  std::vector<float> mapped(t.bytes / sizeof(float));
  std::memcpy(mapped.data(), cut.mapped(t), t.bytes);
  EXPECT_EQ(mapped, all(cut, "y.1.rows"));
}

TEST_F(CutTensors, OneThatIsShapedOtherwiseIsRefused) {
  const auto refused = [&](const Cut& cut) {
    expect_error(ErrorCode::kModel, {"model.safetensors", "tensor \"" + cut.name + "\" is f32", "expected (experts, "},
                 [&] { CutWeights(*file_, {cut}); });
  };
  refused({"other", "y", "weight"});
  refused({"x_rows", "y", "rows", {"gate", "up", "more"}});
  refused({"other", "y", "weight", {"gate", "up"}, true});
}

}  // namespace
}  // namespace tenon::weights
