// These tests hold products through cuBLASLt, with what is fused around them, against float64, and look at tuning and
// its file.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <type_traits>

#include "recorder.h"
#include "tenon/cuda/gemm.h"
#include "tenon/cuda/gemm_tuning.h"

namespace tenon::test {
namespace {

using Mode = CudaRecorder::Mode;
enum class Tail { kNone, kAdd, kAddInPlace, kSilu };

struct Case {
  int64_t rows, n, k;
  tenon_format format = TENON_F16;
  bool norm = false, bias = false;
  Tail tail = Tail::kNone;
  bool strided = false;
  bool halves = false;  // x and y have the weights' format wherever record_gemm takes that

  tenon_format x_format() const { return format_if(halves && !norm); }
  tenon_format y_format() const { return format_if(halves && tail == Tail::kSilu); }

 private:
  tenon_format format_if(bool own) const {
    if (own) return format;
    return TENON_F32;
  }
};

std::string to_string(const Case& c) {
  return "rows " + std::to_string(c.rows) + " n " + std::to_string(c.n) + " k " + std::to_string(c.k) + " " +
         tenon_format_name(c.format) + (c.norm ? " norm" : "") + (c.bias ? " bias" : "") + " tail " +
         std::to_string(static_cast<int>(c.tail)) + (c.strided ? " strided" : "") + (c.halves ? " halves" : "");
}

// Says whether the GPU has the tensor cores of persistent_gemm.h, and as many multiprocessors as tests count on.
bool has_hopper() {
  cudaDeviceProp gpu{};
  TENON_CUDA_CHECK(cudaGetDeviceProperties(&gpu, 0));
  return gpu.major == 9 && gpu.multiProcessorCount == 132;
}

constexpr int64_t kPadding = 3;  // so many rows are not live
constexpr float kEps = 1e-5f, kMostBias = 4;

// Returns a rounding's largest relative error.
double unit(tenon_format format) {
  return format == TENON_F16 ? 0x1p-11 : format == TENON_BF16 ? 0x1p-8 : 0x1p-23;
}

float rounded(float value, tenon_format format) {
  if (format == TENON_F16) return __half2float(__float2half_rn(value));
  return format == TENON_BF16 ? __bfloat162float(__float2bfloat16_rn(value)) : value;
}

// Returns values in a format's own bytes.
std::vector<uint8_t> encoded(const std::vector<float>& values, tenon_format format) {
  const size_t size = tenon_format_block(format).bytes;
  std::vector<uint8_t> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto put = [&](const auto& v) { std::memcpy(bytes.data() + i * size, &v, size); };
    if (format == TENON_F16) {
      put(__float2half_rn(values[i]));
    } else if (format == TENON_BF16) {
      put(__float2bfloat16_rn(values[i]));
    } else {
      put(values[i]);
    }
  }
  return bytes;
}

std::vector<float> random_values(size_t n, float scale, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> values(n);
  for (float& v : values) v = scale * (static_cast<float>(engine()) * 0x1p-31f - 1.0f);
  return values;
}

struct Chain {
  std::vector<tenon_fop> ops;
  std::vector<const tenon_fop*> pointers;
  tenon_chain raw = sdk::abi_struct<tenon_chain>();

  void add(tenon_id id, tenon_tid t = 0, float f = 0) {
    auto op = sdk::abi_struct<tenon_fop>();
    op.id = id;
    op.t[0] = t;
    op.f[0] = f;
    ops.push_back(op);
  }
  const tenon_chain* get() {
    for (const tenon_fop& op : ops) pointers.push_back(&op);
    raw.n = static_cast<uint32_t>(ops.size());
    raw.op = pointers.data();
    return &raw;
  }
};

tenon_tensor rows_tensor(int64_t rows, int64_t columns, bool strided) {
  tenon_tensor t = sdk::tensor(TENON_F32, {rows, columns});
  if (strided) t.stride[0] += 4 * 12;
  return t;
}

// Returns the same rows, as far apart in elements, in another format.
tenon_tensor in_format(const tenon_tensor& rows, tenon_format format) {
  tenon_tensor t = sdk::tensor(format, {rows.dim[0], rows.dim[1]});
  t.stride[0] = rows.stride[0] / 4 * tenon_format_block(format).bytes;
  return t;
}

// This runs one case on the GPU, and has beside it what its elements should be.
class Product {
 public:
  explicit Product(const Case& c)
      : c_(c),
        host_(CudaRecorder::bounds(static_cast<uint32_t>(c.rows))),
        x_view_(rows_tensor(c.rows, c.k, c.strided)),
        y_view_(rows_tensor(c.rows, c.tail == Tail::kSilu ? c.n / 2 : c.n, c.strided)) {
    x_ = random_rows(x_view_, 2, 1);
    for (float& v : x_) v = rounded(v, c.x_format());
    w_ = random_values(static_cast<size_t>(c.n * c.k), 1, 2);
    for (float& v : w_) v = rounded(v, c.format);
    norm_ = random_values(static_cast<size_t>(c.k), 1, 3);
    bias_ = random_values(static_cast<size_t>(c.n), kMostBias, 4);
    addend_ = random_rows(y_view_, 4, 5);
  }

  void record() {
    tenon_tid y = 0;
    Chain pro, epi;
    if (c_.norm) pro.add(TENON_F_RMSNORM, host_.input(TENON_F32, {c_.k}, norm_), kEps);
    if (c_.bias) epi.add(TENON_F_BIAS, host_.input(TENON_F32, {c_.n}, bias_));
    if (c_.tail == Tail::kAdd) epi.add(TENON_F_ADD, host_.input(y_view_, addend_.data()));
    if (c_.tail == Tail::kAddInPlace) epi.add(TENON_F_ADD, y = host_.input(y_view_, addend_.data()));
    if (c_.tail == Tail::kSilu) epi.add(TENON_F_SILU_MUL);
    if (y == 0) y = host_.output(in_format(y_view_, c_.y_format()));
    const tenon_tid w = host_.input(sdk::tensor(c_.format, {c_.n, c_.k}), encoded(w_, c_.format).data());
    host_.set_live(static_cast<uint32_t>(c_.rows - kPadding));
    sdk::Recorder recorder(host_.recorder());
    cuda::record_gemm(recorder, {.x = host_.input(in_format(x_view_, c_.x_format()), encoded(x_, c_.x_format()).data()),
                                 .w = w,
                                 .y = y,
                                 .row_live = 0,
                                 .w_format = c_.format,
                                 .n = c_.n,
                                 .k = c_.k,
                                 .pro = pro.get(),
                                 .epi = epi.get(),
                                 .name = "product"});
    y_ = y;
  }

  void run_and_check(Mode mode) {
    ASSERT_EQ(host_.run(mode), "");
    const std::vector<float> got = host_.f32(y_);
    const int64_t columns = y_view_.dim[1], live = c_.rows - kPadding;
    const auto check = [&](int64_t row, int64_t column) {
      const auto [want, error] = element(row, column);
      const float value = got[static_cast<size_t>(row * columns + column)];
      ASSERT_LE(std::abs(value - want), error)
          << "row " << row << " column " << column << ": " << value << ", not " << want;
    };
    constexpr int64_t kFewSums = 4'000'000;
    if (live * c_.n * c_.k <= kFewSums) {
      for (int64_t i = 0; i < live * columns; ++i) ASSERT_NO_FATAL_FAILURE(check(i / columns, i % columns));
      return;
    }
    std::mt19937_64 random(7);
    ASSERT_NO_FATAL_FAILURE(check(0, 0));
    ASSERT_NO_FATAL_FAILURE(check(live - 1, columns - 1));
    for (int i = 0; i < 512; ++i) {
      ASSERT_NO_FATAL_FAILURE(check(static_cast<int64_t>(random() % static_cast<uint64_t>(live)),
                                    static_cast<int64_t>(random() % static_cast<uint64_t>(columns))));
    }
  }

  void set_x(int64_t row, int64_t column, float value) { x_[at(x_view_, row, column)] = value; }
  void set_w(int64_t row, int64_t column, float value) { w_[static_cast<size_t>(row * c_.k + column)] = value; }
  CudaRecorder& host() { return host_; }
  tenon_tid y() const { return y_; }
  float w(int64_t row, int64_t column) const { return w_[static_cast<size_t>(row * c_.k + column)]; }

 private:
  struct Value {
    double value, error;
  };

  static size_t at(const tenon_tensor& t, int64_t row, int64_t column) {
    return static_cast<size_t>(row * t.stride[0] / 4 + column);
  }

  // Rows that are not live hold NaN.
  static std::vector<float> random_rows(const tenon_tensor& t, float scale, uint32_t seed) {
    auto values = random_values(static_cast<size_t>(t.dim[0] * t.stride[0] / 4), scale, seed);
    std::fill(values.begin() + static_cast<int64_t>(at(t, t.dim[0] - kPadding, 0)), values.end(),
              std::numeric_limits<float>::quiet_NaN());
    return values;
  }

  // Returns sum and bias. Errors of rounding x and of the partial sums count as of independent terms, some deviations.
  Value sum(int64_t row, int64_t column) const {
    double scale = 1;
    if (c_.norm) {
      double squares = 0;
      for (int64_t i = 0; i < c_.k; ++i) squares += std::pow(x_[at(x_view_, row, i)], 2);
      scale = 1 / std::sqrt(squares / static_cast<double>(c_.k) + kEps);
    }
    double value = 0, squares = 0;
    for (int64_t i = 0; i < c_.k; ++i) {
      const double factor = c_.norm ? scale * norm_[static_cast<size_t>(i)] : 1;
      const double term = x_[at(x_view_, row, i)] * factor * w(column, i);
      value += term;
      squares += term * term;
    }
    if (c_.bias) value += bias_[static_cast<size_t>(column)];
    const double partial_sums = 2 * std::sqrt(static_cast<double>(c_.k)) * 0x1p-24;
    double error = (4 * unit(c_.format) + partial_sums) * std::sqrt(squares) + 1e-5;
    if (c_.tail == Tail::kSilu) error += unit(c_.format) * (std::abs(value) + kMostBias);  // the product's own format
    return {value, error};
  }

  Value element(int64_t row, int64_t column) const {
    const Value first = sum(row, column);
    if (c_.tail == Tail::kNone) return first;
    if (c_.tail != Tail::kSilu) return {first.value + addend_[at(y_view_, row, column)], first.error};
    const Value up = sum(row, column + c_.n / 2);
    const double silu = first.value / (1 + std::exp(-first.value));
    const double value = silu * up.value;
    return {value, 1.1 * first.error * (std::abs(up.value) + up.error) + std::abs(silu) * up.error + 1e-5 +
                       unit(c_.y_format()) * std::abs(value)};
  }

  Case c_;
  CudaRecorder host_;
  tenon_tensor x_view_, y_view_;
  std::vector<float> x_, w_, norm_, bias_, addend_;
  tenon_tid y_ = 0;
};

class Gemm : public testing::Test {
 protected:
  // The choices that are tuned here go to a folder of the test's own.
  static void SetUpTestSuite() {
    cache_ = std::filesystem::path(testing::TempDir()) / ("tenon_gemm_test_" + std::to_string(getpid()));
    setenv("XDG_CACHE_HOME", cache_.c_str(), 1);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(cache_); }
  void SetUp() override {
    if (const std::string why = cuda_missing(); !why.empty()) GTEST_SKIP() << why;
  }

  static void expect_right(const Case& c, Mode mode = Mode::kOverlap) {
    SCOPED_TRACE(to_string(c));
    Product product(c);
    product.record();
    product.run_and_check(mode);
  }

  static std::filesystem::path tuning_file() {
    for (const auto& entry : std::filesystem::directory_iterator(cache_ / "tenon")) return entry.path();
    return {};
  }

  inline static std::filesystem::path cache_;
};

class GemmFormats : public Gemm, public testing::WithParamInterface<tenon_format> {};
INSTANTIATE_TEST_SUITE_P(Formats, GemmFormats, testing::Values(TENON_F16, TENON_BF16, TENON_F32),
                         [](const auto& format) { return tenon_format_name(format.param); });

TEST_P(GemmFormats, EveryEpilogue) {
  const int64_t shapes[][3] = {{17, 48, 64}, {100, 1000, 576}, {33, 34, 35}};
  for (const auto& [rows, n, k] : shapes) {
    for (const Tail tail : {Tail::kNone, Tail::kAdd, Tail::kAddInPlace, Tail::kSilu}) {
      for (int options = 0; options < 16; ++options) {
        const Case c{rows,
                     n,
                     k,
                     GetParam(),
                     (options & 1) != 0,
                     (options & 2) != 0,
                     tail,
                     (options & 4) != 0,
                     (options & 8) != 0};
        if (!c.halves || c.x_format() != TENON_F32 || c.y_format() != TENON_F32) expect_right(c);
      }
    }
  }
}

TEST_P(GemmFormats, LargeShapes) {
  expect_right({512, 12288, 576, GetParam(), true, false, Tail::kNone});
  expect_right({512, 1000, 4096, GetParam(), false, false, Tail::kAdd, true});
  expect_right({2048, 12288, 64, GetParam(), true, true, Tail::kSilu});
  expect_right({2048, 12288, 64, GetParam(), false, true, Tail::kSilu, false, true});
  expect_right({2048, 1000, 4096, GetParam(), true, true, Tail::kAdd});
}

// More rows than one piece of a SILU_MUL has, and pieces of unequal length.
TEST_P(GemmFormats, SiluInPieces) {
  const Case c{2 * cuda::kSiluPieceRows + 1, 96, 64, GetParam(), true, true, Tail::kSilu, true};
  Product product(c);
  product.record();
  EXPECT_EQ(product.host().op_count(), 1u + 3 * 2);
  product.run_and_check(Mode::kOverlap);
}

// 11 bands of rows by 6 and by 12 panels of columns: one and two turns of an H200's 66 pairs of blocks. One band by 112
// panels, or by the 128 narrower ones that fill two turns.
TEST_P(GemmFormats, SiluInOneOp) {
  if (GetParam() == TENON_F32) GTEST_SKIP() << "it multiplies halves";
  if (!has_hopper()) GTEST_SKIP() << "this GPU does it in two ops";
  const std::pair<int64_t, int64_t> shapes[] = {{2816, 760}, {2816, 1536}, {250, 14328}};
  for (const auto& [rows, columns] : shapes) {
    for (const bool normed : {false, true}) {
      const Case c{rows, 2 * columns, 200, GetParam(), normed, false, Tail::kSilu, false, true};
      SCOPED_TRACE(to_string(c));
      Product product(c);
      product.record();
      EXPECT_EQ(product.host().op_count(), normed ? 2u : 1u);
      product.run_and_check(Mode::kOverlap);
    }
  }
}

// Bands of 256 rows without a live one are left out.
TEST_F(Gemm, SiluOfBandsWithLiveRowsAlone) {
  if (!has_hopper()) GTEST_SKIP() << "this GPU does it in two ops";
  constexpr int64_t kRows = 2816, kColumns = 768, kBand = 256;
  for (const int64_t live : {0, 1, 257, 1024}) {
    Product product({kRows, 2 * kColumns, 64, TENON_BF16, false, false, Tail::kSilu, false, true});
    product.record();
    product.host().set_live(static_cast<uint32_t>(live));
    ASSERT_EQ(product.host().run(), "");
    const std::vector<float> y = product.host().f32(product.y());
    const int64_t computed = (live + kBand - 1) / kBand * kBand;
    for (int64_t row = 0; row < kRows; ++row) {
      // An output is full of NaN until it is written.
      ASSERT_EQ(std::isnan(y[static_cast<size_t>(row * kColumns)]), row >= computed) << "row " << row << " of " << live;
    }
  }
}

TEST_P(GemmFormats, FirstLaunchInsideACapture) {
  expect_right({19, 56, 72, GetParam(), true, true, Tail::kAdd}, Mode::kGraph);
}

TEST_F(Gemm, F16Saturates) {
  Product product({17, 48, 64, TENON_F16});
  for (int64_t column = 0; column < 64; ++column) product.set_x(3, column, column == 5 ? 1e6f : 0.0f);
  product.record();
  ASSERT_EQ(product.host().run(), "");
  const float got = product.host().f32(product.y())[3 * 48 + 2];
  EXPECT_FLOAT_EQ(got, 65504.0f * product.w(2, 5));
}

// There are a gate and an up that no f16 holds: silu(-1e6) is 0, and silu(1e6) times as much more than any f16.
TEST_F(Gemm, F16SaturatesAroundSilu) {
  Product product({17, 48, 64, TENON_F16, false, false, Tail::kSilu, false, true});
  for (int64_t column = 0; column < 64; ++column) {
    product.set_x(3, column, column == 5 ? 60000.0f : 0.0f);
    product.set_x(4, column, column == 5 ? -60000.0f : 0.0f);
  }
  for (const int64_t row : {2, 26}) product.set_w(row, 5, 32);
  product.record();
  ASSERT_EQ(product.host().run(), "");
  const std::vector<float> got = product.host().f32(product.y());
  EXPECT_EQ(got[3 * 24 + 2], 65504.0f);
  EXPECT_EQ(got[4 * 24 + 2], 0.0f);
}

TEST_F(Gemm, RefusesOtherChains) {
  CudaRecorder host(CudaRecorder::bounds(17));
  sdk::Recorder recorder(host.recorder());
  const tenon_tid x = host.input(sdk::tensor(TENON_F32, {17, 64}), nullptr), y = host.output(TENON_F32, {17, 64});
  const auto record = [&](tenon_id first, tenon_id second, tenon_format format = TENON_F16) {
    Chain epi;
    epi.add(first, x);
    if (second != 0) epi.add(second, x);
    cuda::record_gemm(recorder, {.x = x,
                                 .w = x,
                                 .y = y,
                                 .row_live = 0,
                                 .w_format = format,
                                 .n = 64,
                                 .k = 64,
                                 .pro = nullptr,
                                 .epi = epi.get(),
                                 .name = "product"});
  };
  EXPECT_THROW(record(TENON_F_ADD, TENON_F_BIAS), sdk::Failed);
  EXPECT_THROW(record(TENON_F_ADD, TENON_F_SILU_MUL), sdk::Failed);
  EXPECT_THROW(record(TENON_F_ROPE, 0), sdk::Failed);
  EXPECT_THROW(record(TENON_F_BIAS, 0, TENON_I8), sdk::Failed);
  EXPECT_EQ(host.op_count(), 0u);
}

TEST_F(Gemm, TuningIsKeptInAFile) {
  expect_right({40, 80, 160});
  const std::filesystem::path path = tuning_file();
  const auto text = [&] {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string before = text();
  const size_t at = before.find("\n40 80 160 ");
  ASSERT_NE(at, std::string::npos) << before;
  std::istringstream line(before.substr(at + 1));
  cuda::detail::ProductKey key{};
  for (int64_t& number : key) line >> number;
  int device = 0;
  TENON_CUDA_CHECK(cudaGetDevice(&device));
  const cuda::detail::TuningFile again(device);
  ASSERT_NE(again.find(key), nullptr);
  std::string words;
  for (const uint64_t word : again.find(key)->raw.data) {
    std::ostringstream hex;
    hex << std::hex << word << ' ';
    words += hex.str();
  }
  EXPECT_NE(before.find(words, at), std::string::npos);

  std::ofstream(path) << "something else\n" << before.substr(at + 1);
  EXPECT_EQ(cuda::detail::TuningFile(device).find(key), nullptr);
  std::ofstream(path) << before.substr(0, at + 40);  // the file is torn
  EXPECT_EQ(cuda::detail::TuningFile(device).find(key), nullptr);
  std::ofstream(path) << before;
}

TEST_F(Gemm, TuningCanBeOff) {
  setenv("TENON_TUNING", "off", 1);
  expect_right({41, 88, 168});
  unsetenv("TENON_TUNING");
  expect_right({42, 88, 168});
  std::ifstream file(tuning_file());
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(text.find("\n41 88 168 "), std::string::npos);
  EXPECT_NE(text.find("\n42 88 168 "), std::string::npos);
}

}  // namespace
}  // namespace tenon::test
