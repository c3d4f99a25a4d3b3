// This is a site of a weight scheme on a GPU, through the scheme's library, for tests: what it computes, and what
// float64 makes of the same matrices.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "../support/coded_rows.h"
#include "../support/plain_matrices.h"
#include "../support/weight_rows.h"
#include "recorder.h"
#include "scheme_library.h"
#include "tenon/sdk/convert.h"

namespace tenon::test {

inline float as_bf16(float f) {
  return sdk::bf16_to_float(sdk::float_to_bf16(f));
}
inline bool is_coded(const Setting& s) {
  return s.name == "nf4" || s.name == "fp4" || s.name == "fp6" || s.name == "fp8" || s.name == "uintx";
}
// Says whether one row, in a pipeline that has no step of several, is multiplied by other numbers than several rows are.
inline bool differs_alone(const Setting& s) {
  return s.name == "nf4";
}
// Returns the numbers that products on a GPU multiply in the place of a book's: halves, or bytes of tables.
inline std::vector<double> multiplied(const Setting& s, const std::vector<double>& book, bool alone) {
  if (alone && differs_alone(s)) return normal_float4_of_tables();
  std::vector<double> halves;
  for (const double v : book) halves.push_back(double{sdk::half_to_float(sdk::float_to_half(static_cast<float>(v)))});
  return halves;
}
// Makes of a row what the scheme is to make of it; if `alone`, what one row multiplies that differs_alone().
inline void quantize(const Setting& s, float* w, int64_t k, bool alone = false) {
  if (s.name == "int8wo") {
    hold_as_int8(w, static_cast<size_t>(k));
  } else if (s.name == "int4wo") {
    for (int64_t at = 0; at < k; at += s.group) {
      const int64_t end = std::min(k, at + s.group);
      const auto [low, high] = std::minmax_element(w + at, w + end);
      const float step = std::max((*high - *low) / 15, 1e-6F), scale = as_bf16(step), zero = as_bf16(*low + 8 * step);
      for (int64_t i = at; i < end; ++i) {
        w[i] = (std::clamp(std::rint((w[i] - (zero - 8 * scale)) / scale), 0.0F, 15.0F) - 8) * scale + zero;
      }
    }
  } else if (is_coded(s)) {
    CodedForm form = coded_form(s.name, s.group, s.second, s.text);
    form.multiplied = multiplied(s, form.book, alone);
    hold_coded(form, w, static_cast<size_t>(k));
  } else if (s.text == std::string("fp16")) {
    for (int64_t i = 0; i < k; ++i) w[i] = sdk::half_to_float(sdk::float_to_half(w[i]));
  } else if (s.text == std::string("bf16")) {
    for (int64_t i = 0; i < k; ++i) w[i] = as_bf16(w[i]);
  }
}

inline std::vector<float> random_values(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& f : v) f = normal(random);
  return v;
}

struct Chain {
  std::vector<tenon_fop> ops;
  std::vector<const tenon_fop*> pointers;
  tenon_chain chain = sdk::abi_struct<tenon_chain>();
  explicit Chain(const std::vector<tenon_id>& ids) {
    for (const tenon_id id : ids) {
      ops.push_back(sdk::abi_struct<tenon_fop>());
      ops.back().id = id;
      ops.back().f[0] = id == TENON_F_RMSNORM ? 1e-5F : 0;
    }
    for (const tenon_fop& op : ops) pointers.push_back(&op);
    chain.n = static_cast<uint32_t>(ops.size());
    chain.op = pointers.data();
  }
};

struct Shape {
  std::vector<int64_t> rows;
  int64_t k;  // it is the least number of columns: a site has whole blocks
};
struct Around {
  bool norm = false;
  std::vector<tenon_id> epilogue{};
};

// This is a site of random matrices with the ops around it, loaded by its scheme, and what float64 makes of it.
class Site {
 public:
  Site(const Setting& setting, const Shape& shape, const Around& around = {})
      : setting_(setting),
        scheme_(setting),
        shape_(shape),
        around_(around),
        pro_(around.norm ? std::vector<tenon_id>{TENON_F_RMSNORM} : std::vector<tenon_id>{}),
        epi_(around.epilogue) {
    for (size_t i = 0; i < shape.rows.size(); ++i) source_.push_back(setting.types[i % setting.types.size()]);
    for (const tenon_format type : setting.types) {
      const int64_t block = tenon_format_block(type).elements;
      shape_.k = std::max(shape_.k, (shape.k + block - 1) / block * block);
    }
    matrices_ = std::make_unique<PlainMatrices>(source_, shape_.rows, shape_.k);
    const tenon_linear linear = described();
    const tenon_bounds bounds = CudaRecorder::bounds(1);
    const auto& t = scheme_.table();
    check(t.claim(scheme_.self(), &linear, &bounds, &claim_, &why_), text_);
    if (claim_.pro != pro_.ops.size() || claim_.epi != epi_.ops.size()) throw std::runtime_error("not all is claimed");
    const tenon_claim* claims[] = {&claim_};
    check(t.bind(scheme_.self(), &linear, claims, 1, &site_, &why_), text_);
    check(t.footprint(scheme_.self(), site_, &footprint_, &why_), text_);
    for (const int64_t r : shape.rows) columns_ += r;
    load();
    if (differs_alone(setting)) alone_ = weights_;
    for (int64_t r = 0; r < columns_; ++r) {
      const auto at = static_cast<size_t>(r * shape_.k);
      quantize(setting, &weights_[at], shape_.k);
      if (!alone_.empty()) quantize(setting, &alone_[at], shape_.k, true);
    }
  }
  ~Site() {
    scheme_.table().unbind(scheme_.self(), site_);
    for (void* p : stores_) cudaFree(p);
  }
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  int64_t k() const { return shape_.k; }
  int64_t width() const { return silu() ? columns_ / 2 : columns_; }
  const float* weights(int64_t row) const { return &weights_[static_cast<size_t>(row * shape_.k)]; }
  std::vector<float> norm() const { return random_values(static_cast<size_t>(shape_.k), 2); }

  // Rows of the addend have three magnitudes.
  static float size_of_addend(size_t row) { return std::exp2(static_cast<float>(row % 3) * 8 - 8); }

  // Says whether the scheme takes x, and leaves y, of so many rows in these formats (tenon/sdk/linked_rows.h).
  bool takes(uint32_t rows, uint32_t x, uint32_t y) const {
    tenon_linear linear = described();
    linear.x_format = x;
    linear.y_format = y;
    const tenon_bounds bounds = CudaRecorder::bounds(rows);
    auto claim = sdk::abi_struct<tenon_claim>();
    char text[256] = "";
    tenon_reason why{text, sizeof(text)};
    return scheme_.table().claim(scheme_.self(), &linear, &bounds, &claim, &why) == TENON_OK;
  }

  // Records the product of x (rows, k), and makes y and the operands around it.
  tenon_tid record(CudaRecorder& host, tenon_tid x, int64_t rows, int64_t pitch = 0) {
    tenon_tensor t = sdk::tensor(TENON_F32, {rows, width()});
    t.stride[0] += 4 * pitch;
    return record_to(host, x, rows, t);
  }
  // Records the same with a y as t says. If `next` is given, rows for that norm are left in `normed`, too.
  tenon_tid record_to(CudaRecorder& host, tenon_tid x, int64_t rows, const tenon_tensor& t, tenon_tid normed = 0,
                      const tenon_fop* next = nullptr) {
    auto call = sdk::abi_struct<tenon_linear_call>();
    call.x = x;
    call.y = host.output(t);
    call.normed = normed;
    call.norm = next;
    std::vector<tenon_tid> stores;
    for (size_t i = 0; i < stores_.size(); ++i) {
      stores.push_back(host.store(footprint_.store_bytes[i]));
      TENON_CUDA_CHECK(
          cudaMemcpy(host.data(stores[i]), stores_[i], footprint_.store_bytes[i], cudaMemcpyDeviceToDevice));
    }
    if (around_.norm) pro_.ops[0].t[0] = host.input(TENON_F32, {shape_.k}, norm());
    for (tenon_fop& op : epi_.ops) {
      if (op.id == TENON_F_BIAS) op.t[0] = host.input(TENON_F32, {columns_}, bias());
      if (op.id == TENON_F_ADD) op.t[0] = host.input(TENON_F32, {rows, columns_}, addend(rows));
    }
    call.store = stores.data();
    call.pro = &pro_.chain;
    call.epi = &epi_.chain;
    call.claim = &claim_;
    check(scheme_.table().record(scheme_.self(), site_, &call, host.recorder(), &why_), text_);
    return call.y;
  }
  // Returns y (rows, width) of the first `rows` rows of the test's x. If the scheme leaves the size of blocks to the
  // host, the first product of a program has small ones and the next one large ones; small: false: the second one runs.
  std::vector<float> run(int64_t rows, int64_t pitch = 0, bool small = true) {
    return run(CudaRecorder::bounds(static_cast<uint32_t>(rows)), {.pitch = pitch, .small = small});
  }
  // Runs the same in a pipeline that has another step of kAmong rows.
  static constexpr uint32_t kAmong = 8;
  std::vector<float> run_among(int64_t rows, bool small = true) {
    return run(CudaRecorder::bounds(static_cast<uint32_t>(rows)), {.small = small, .most_out_rows = kAmong});
  }
  // Runs the same in a step in which each row is of another sequence, and of which so many are live. The pipeline has
  // steps of several sequences, so that a row alone has the bits that it has in these.
  std::vector<float> run_sequences(int64_t rows, int64_t live, int64_t pitch = 0) {
    tenon_bounds bounds = CudaRecorder::bounds(static_cast<uint32_t>(rows), static_cast<uint32_t>(rows));
    bounds.rows_per_seq = 1;
    return run(bounds, {.pitch = pitch, .live = static_cast<uint32_t>(live), .most_out_rows = kAmong});
  }
  struct Step {
    int64_t pitch = 0;
    bool small = true;
    uint32_t live = UINT32_MAX, most_out_rows = 0;
  };
  std::vector<float> run(const tenon_bounds& bounds, const Step& step) {
    CudaRecorder host(bounds, step.most_out_rows);
    const int64_t rows = bounds.rows, pitch = step.pitch;
    host.set_live(std::min(step.live, bounds.rows));
    tenon_tensor t = sdk::tensor(TENON_F32, {rows, shape_.k});
    t.stride[0] += 4 * pitch;
    std::vector<float> laid;
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<float> row = x(r);
      laid.insert(laid.end(), row.begin(), row.end());
      laid.resize(laid.size() + static_cast<size_t>(pitch));
    }
    const tenon_tid in = host.input(t, laid.data());
    if (!step.small) record(host, in, rows, pitch);
    const tenon_tid y = record(host, in, rows, pitch);
    EXPECT_EQ(host.run(CudaRecorder::Mode::kGraph), "");
    return host.f32(y);
  }
  std::vector<float> lookup(const std::vector<int32_t>& index) {
    const auto n = static_cast<int64_t>(index.size());
    CudaRecorder host(CudaRecorder::bounds(static_cast<uint32_t>(n)));
    std::vector<tenon_tid> stores;
    for (size_t i = 0; i < stores_.size(); ++i) {
      stores.push_back(host.store(footprint_.store_bytes[i]));
      TENON_CUDA_CHECK(
          cudaMemcpy(host.data(stores[i]), stores_[i], footprint_.store_bytes[i], cudaMemcpyDeviceToDevice));
    }
    const tenon_tid y = host.output(TENON_F32, {n, shape_.k});
    check(scheme_.table().record_rows(scheme_.self(), site_, stores.data(), host.input(TENON_I32, {n}, index), y,
                                      host.recorder(), &why_),
          text_);
    EXPECT_EQ(host.run(), "");
    return host.f32(y);
  }

  // Computes a row of y in float64, and in `size` how far it may be off for a relative error of 1 of a sum of |w x|, or
  // of the products that it is the difference of, where weights are integers less a zero point. If `alone`, x
  // meets the weights that a row alone multiplies.
  void exact(int64_t row, std::vector<double>& y, std::vector<double>& size, bool alone = false) const {
    const std::vector<float> source = x(row), norm_weight = norm(), b = bias(), add = addend(row + 1);
    std::vector<double> in(source.begin(), source.end());
    if (around_.norm) {
      double square = 0;
      for (const double v : in) square += v * v;
      const double scale = 1 / std::sqrt(square / static_cast<double>(shape_.k) + double{1e-5F});
      for (size_t i = 0; i < in.size(); ++i) in[i] *= scale * double{norm_weight[i]};
    }
    y.assign(static_cast<size_t>(columns_), 0);
    size = y;
    for (int64_t c = 0; c < columns_; ++c) {
      const auto at = static_cast<size_t>(c);
      const float* w = alone && !alone_.empty() ? &alone_[static_cast<size_t>(c * shape_.k)] : weights(c);
      const double least = setting_.name == "uintx" ? double{coded_detail::magnitude(w, in.size())} : 0;
      for (size_t i = 0; i < in.size(); ++i) {
        y[at] += in[i] * double{w[i]};
        size[at] += std::abs(in[i]) * std::max(std::abs(double{w[i]}), least);
      }
      for (const tenon_fop& op : epi_.ops) {
        if (op.id == TENON_F_SILU_MUL) continue;
        const double v = op.id == TENON_F_BIAS ? b[at] : add[static_cast<size_t>(row * columns_) + at];
        y[at] += v;
        size[at] += std::abs(v);
      }
    }
    if (!silu()) return;
    const size_t half = y.size() / 2;
    for (size_t c = 0; c < half; ++c) {
      const double gate = y[c] / (1 + std::exp(-y[c]));
      size[c] = 1.1 * size[c] * std::abs(y[half + c]) + std::abs(gate) * size[half + c] + 1;
      y[c] = gate * y[half + c];
    }
    y.resize(half);
    size.resize(half);
  }

 private:
  tenon_linear described() const {
    auto linear = sdk::abi_struct<tenon_linear>();
    linear.path = "test.site";
    linear.description = "";
    linear.n_mats = static_cast<uint32_t>(shape_.rows.size());
    linear.x_format = linear.y_format = TENON_F32;
    linear.out_dim = shape_.rows.data();
    linear.matrix = matrices_->get();
    linear.in_dim = shape_.k;
    linear.rows_wanted = linear.product_wanted = 1;
    linear.pro = &pro_.chain;
    linear.epi = &epi_.chain;
    return linear;
  }
  bool silu() const { return !epi_.ops.empty() && epi_.ops.back().id == TENON_F_SILU_MUL; }
  // The rows have very different magnitudes, and one is zeros.
  std::vector<float> x(int64_t row) const {
    std::vector<float> v = random_values(static_cast<size_t>(shape_.k), 100 + static_cast<uint32_t>(row));
    for (float& f : v) f *= row == 3 ? 0 : std::exp2(static_cast<float>(row % 5 * 6 - 12));
    return v;
  }
  std::vector<float> bias() const { return random_values(static_cast<size_t>(columns_), 3); }
  std::vector<float> addend(int64_t rows) const {
    std::vector<float> v = random_values(static_cast<size_t>(rows * columns_), 4);
    for (size_t i = 0; i < v.size(); ++i) v[i] *= size_of_addend(i / columns_);
    return v;
  }

  void load() {
    for (uint32_t i = 0; i < footprint_.n_stores; ++i) {
      void* p = nullptr;
      TENON_CUDA_CHECK(cudaMalloc(&p, footprint_.store_bytes[i]));
      TENON_CUDA_CHECK(cudaMemset(p, 0xff, footprint_.store_bytes[i]));  // nothing is taken to be zero
      stores_.push_back(p);
    }
    for (uint32_t m = 0; m < shape_.rows.size(); ++m) load(m, file_rows(m));
  }
  // Makes a matrix as a file has it, and adds what it stands for to the weights.
  std::vector<uint8_t> file_rows(uint32_t m) {
    const auto n = static_cast<size_t>(shape_.rows[m] * shape_.k);
    std::vector<uint8_t> bytes(n * sizeof(float));
    if (setting_.blocks()) {
      std::mt19937 random(m + 1);
      bytes = random_rows(source_[m], static_cast<uint32_t>(shape_.rows[m]), static_cast<uint32_t>(shape_.k), 0.05F,
                          random);
    } else {
      std::vector<float> w = random_values(n, m + 1);
      for (float& f : w) f *= 0.05F;
      std::memcpy(bytes.data(), w.data(), bytes.size());
    }
    const size_t begin = weights_.size();
    weights_.resize(begin + n);
    sdk::unpack_row(source_[m], bytes.data(), n, &weights_[begin]);
    return bytes;
  }
  void load(uint32_t m, const std::vector<uint8_t>& bytes) {
    uint8_t* staged = nullptr;
    TENON_CUDA_CHECK(cudaMalloc(&staged, bytes.size()));
    TENON_CUDA_CHECK(cudaMemcpy(staged, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
    const uint64_t row_bytes = bytes.size() / static_cast<uint64_t>(shape_.rows[m]);
    for (int64_t row = 0; row < shape_.rows[m]; row += 37) {
      auto src = sdk::abi_struct<tenon_rows>();
      src.mat = m;
      src.row0 = static_cast<uint64_t>(row);
      src.rows = static_cast<uint64_t>(std::min<int64_t>(37, shape_.rows[m] - row));
      const tenon_slice slice{staged + src.row0 * row_bytes, src.rows * row_bytes};
      src.tensor = &slice;
      check(scheme_.table().load(scheme_.self(), site_, &src, stores_.data(), nullptr, nullptr, &why_), text_);
    }
    TENON_CUDA_CHECK(cudaDeviceSynchronize());
    cudaFree(staged);
  }

  Setting setting_;
  Scheme scheme_;
  Shape shape_;
  std::vector<tenon_format> source_;
  std::unique_ptr<PlainMatrices> matrices_;
  Around around_;
  Chain pro_, epi_;
  char text_[256] = "";
  tenon_reason why_{text_, sizeof(text_)};
  tenon_claim claim_ = sdk::abi_struct<tenon_claim>();
  tenon_footprint footprint_ = sdk::abi_struct<tenon_footprint>();
  void* site_ = nullptr;
  int64_t columns_ = 0;
  std::vector<float> weights_, alone_;  // alone_: what a row alone multiplies, if that differs
  std::vector<void*> stores_;
};

// Compares the rows of y with float64. If `alone`, y is of a row in a pipeline that has no step of several.
inline void expect_close(const Site& site, const std::vector<float>& y, int64_t rows, double tolerance,
                         bool alone = false) {
  std::vector<double> want, size;
  const auto width = static_cast<size_t>(site.width());
  for (int64_t r = 0; r < rows; ++r) {
    site.exact(r, want, size, alone);
    for (size_t c = 0; c < width; ++c) {
      const double got = y[static_cast<size_t>(r) * width + c];
      ASSERT_NEAR(got, want[c], tolerance * size[c] + 1e-30) << "row " << r << " of " << rows << ", column " << c;
    }
  }
}

}  // namespace tenon::test
