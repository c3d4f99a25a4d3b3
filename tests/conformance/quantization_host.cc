#include "quantization_host.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>

#include "support/weight_rows.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/recorder.h"

namespace tenon::test {
namespace {

constexpr float kEps = 1e-5F;
constexpr size_t kAlignment = 256;  // of stores that the host allocates

// The definitions of the schemes once more, a row at a time.
std::vector<float> int8_row(const float* w, int64_t k) {
  float largest = 0;
  for (int64_t i = 0; i < k; ++i) largest = std::max(largest, std::abs(w[i]));
  const float s = std::max(largest / 127.5F, FLT_EPSILON);
  std::vector<float> out;
  for (int64_t i = 0; i < k; ++i) out.push_back(std::clamp(std::rint(w[i] / s), -128.0F, 127.0F) * s);
  return out;
}
float as_bf16(float f) {
  return sdk::cpu::bf16_to_float(sdk::cpu::float_to_bf16(f));
}
std::vector<float> int4_row(const float* w, int64_t k, int64_t group) {
  std::vector<float> out;
  for (int64_t at = 0; at < k; at += group) {
    const int64_t end = std::min(k, at + group);
    const float low = *std::min_element(w + at, w + end), high = *std::max_element(w + at, w + end);
    const float step = std::max((high - low) / 15, 1e-6F);
    const float s = as_bf16(step), z = as_bf16(low + 8 * step);
    for (int64_t i = at; i < end; ++i) {
      out.push_back((std::clamp(std::rint((w[i] - (z - 8 * s)) / s), 0.0F, 15.0F) - 8) * s + z);
    }
  }
  return out;
}

std::vector<float> as_held(const Scheme& scheme, std::vector<float> file, int64_t k) {
  if (scheme.dtype == "stored" || scheme.dtype == "fp32") return file;
  if (scheme.name == "none") {
    for (float& w : file) {
      w = scheme.dtype == "fp16" ? sdk::cpu::half_to_float(sdk::cpu::float_to_half(w)) : as_bf16(w);
    }
    return file;
  }
  if (scheme.name != "int8wo" && scheme.group == 0) return file;
  for (size_t at = 0; at < file.size(); at += static_cast<size_t>(k)) {
    const std::vector<float> row =
        scheme.name == "int8wo" ? int8_row(&file[at], k) : int4_row(&file[at], k, scheme.group);
    std::copy(row.begin(), row.end(), file.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return file;
}

std::vector<float> random_values(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& f : v) f = normal(random);
  return v;
}

void check(tenon_status status, const char* text) {
  if (status != TENON_OK) throw std::runtime_error(text);
}

// A chain with its ops.
struct Chain {
  std::vector<tenon_fop> ops;
  std::vector<const tenon_fop*> pointers;
  tenon_chain chain = sdk::abi_struct<tenon_chain>();

  const tenon_chain* get() {
    pointers.clear();
    for (const tenon_fop& op : ops) pointers.push_back(&op);
    chain.n = static_cast<uint32_t>(ops.size()), chain.op = pointers.data();
    return &chain;
  }
  void add(tenon_id id) {
    ops.push_back(sdk::abi_struct<tenon_fop>());
    ops.back().id = id;
    if (id == TENON_F_RMSNORM) ops.back().f[0] = kEps;
  }
};

std::vector<float> norm_weight(int64_t k, uint32_t seed) {
  return random_values(static_cast<size_t>(k), seed + 101);
}
std::vector<float> addend(const StepCase& step, size_t op, int64_t columns) {
  const size_t rows = step.epilogue[op] == TENON_F_ADD ? step.rows : 1;
  return random_values(rows * static_cast<size_t>(columns), step.seed + 201 + static_cast<uint32_t>(op));
}

}  // namespace

std::unique_ptr<Component> Scheme::open() const {
  const auto with = [&](std::initializer_list<Setting> settings) {
    return std::make_unique<Component>("quantization", name, settings, isa);
  };
  if (!dtype.empty()) return with({{"dtype", dtype}});
  if (group != 0) return with({{"group_size", group}});
  if (name == "gguf") return with({{"activations", std::string(int8 ? "int8" : "f32")}});
  return with({});
}

void PrintTo(const Scheme& s, std::ostream* out) {
  *out << s.label;
}

LinearDescription::LinearDescription(const SiteCase& c) : linear(sdk::abi_struct<tenon_linear>()), site(c) {
  linear.path = "test.site", linear.role = "qkv";
  linear.n_mats = static_cast<uint32_t>(site.rows.size());
  linear.x_format = linear.y_format = TENON_F32;
  linear.out_dim = site.rows.data(), linear.source = site.source.data(), linear.in_dim = site.k;
  linear.shard_world = 1, linear.rows_wanted = 1, linear.product_wanted = 1;
}

QuantizedSite::QuantizedSite(const Scheme& scheme, const SiteCase& site, uint32_t rows_a_load)
    : component_(scheme.open()), table_(&component_->table<tenon_quantization>()), case_(site), k_(site.k) {
  std::mt19937 random(site.seed);
  for (size_t m = 0; m < site.rows.size(); ++m) {
    bytes_.push_back(random_rows(site.source[m], static_cast<uint32_t>(site.rows[m]), static_cast<uint32_t>(k_),
                                 site.scale, random));
    file_.emplace_back(static_cast<size_t>(site.rows[m] * k_));
    sdk::cpu::unpack_row(site.source[m], bytes_[m].data(), file_[m].size(), file_[m].data());
    held_.push_back(as_held(scheme, file_[m], k_));
  }
  const LinearDescription description(case_);
  const tenon_bounds bounds = OpRunner::bounds({.rows = 1});
  auto claim = sdk::abi_struct<tenon_claim>();
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  check(table_->claim(component_->self(), &description.linear, &bounds, &claim, &why), text);
  const tenon_claim* claims[] = {&claim};
  void* made = nullptr;
  check(table_->bind(component_->self(), &description.linear, claims, 1, &made, &why), text);
  site_ = {made, [this](void* p) { table_->unbind(component_->self(), p); }};
  footprint_ = sdk::abi_struct<tenon_footprint>();
  check(table_->footprint(component_->self(), site_.get(), &footprint_, &why), text);
  load(rows_a_load);
}

void QuantizedSite::load(uint32_t rows_a_load) {
  std::vector<std::vector<uint8_t>> room;
  std::vector<void*> pointers;
  for (uint32_t i = 0; i < footprint_.n_stores; ++i) {
    size_t bytes = footprint_.store_bytes[i] + kAlignment;
    void* p = room.emplace_back(bytes, uint8_t{0xff}).data();
    pointers.push_back(std::align(kAlignment, footprint_.store_bytes[i], p, bytes));
  }
  std::vector<float> scratch(footprint_.load_bytes / sizeof(float) + 1);
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  for (uint32_t m = 0; m < case_.rows.size(); ++m) {
    const auto rows = static_cast<uint64_t>(case_.rows[m]), row_bytes = bytes_[m].size() / rows;
    for (uint64_t row = 0; row < rows; row += rows_a_load) {
      auto src = sdk::abi_struct<tenon_rows>();
      src.mat = m, src.format = case_.source[m], src.row0 = row, src.rows = std::min<uint64_t>(rows_a_load, rows - row);
      src.data = bytes_[m].data() + row * row_bytes, src.bytes = src.rows * row_bytes;
      check(table_->load(component_->self(), site_.get(), &src, pointers.data(), scratch.data(), nullptr, &why), text);
    }
  }
  for (uint32_t i = 0; i < footprint_.n_stores; ++i) {
    const auto* p = static_cast<const uint8_t*>(pointers[i]);
    stores_.emplace_back(p, p + footprint_.store_bytes[i]);
  }
  if ((footprint_.flags & TENON_FOOTPRINT_IN_PLACE) == 0) return;
  EXPECT_EQ(stores_, bytes_) << "a scheme that works in place must load the file's bytes";
}

int64_t QuantizedSite::columns() const {
  int64_t n = 0;
  for (const int64_t r : case_.rows) n += r;
  return n;
}

// What stands around a step's product.
struct QuantizedSite::Chains {
  Chains(const StepCase& step, bool fused) {
    if (fused && step.norm) pro.add(TENON_F_RMSNORM);
    if (!fused) return;
    for (const tenon_id id : step.epilogue) epi.add(id);
  }
  Chain pro, epi;
};

tenon_claim QuantizedSite::claim(const tenon_bounds& bounds, Chains& chains) const {
  LinearDescription description(case_);
  description.linear.pro = chains.pro.get(), description.linear.epi = chains.epi.get();
  auto claim = sdk::abi_struct<tenon_claim>();
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  check(table_->claim(component_->self(), &description.linear, &bounds, &claim, &why), text);
  return claim;
}

bool QuantizedSite::claims(const StepCase& step) const {
  Chains chains(step, true);
  const tenon_claim made = claim(OpRunner::bounds({.rows = step.rows}), chains);
  EXPECT_LE(made.pro, chains.pro.ops.size());
  EXPECT_LE(made.epi, chains.epi.ops.size());
  return made.pro == chains.pro.ops.size() && made.epi == chains.epi.ops.size();
}

std::string QuantizedSite::emit(OpRunner& host, const StepCase& step, bool fused, tenon_tid x, tenon_tid y) const {
  Chains chains(step, fused);
  auto& [pro, epi] = chains;
  const tenon_claim claim = this->claim(*host.recorder()->bounds, chains);
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (claim.pro != pro.ops.size() || claim.epi != epi.ops.size()) return "not all of the step was claimed";

  if (claim.pro == 1) pro.ops[0].t[0] = host.input(TENON_F32, {k_}, norm_weight(k_, step.seed));
  int64_t n = columns();
  for (size_t i = 0; i < epi.ops.size(); ++i) {
    if (step.epilogue[i] == TENON_F_SILU_MUL) n /= 2;
    if (step.epilogue[i] == TENON_F_BIAS) epi.ops[i].t[0] = host.input(TENON_F32, {n}, addend(step, i, n));
    if (step.epilogue[i] == TENON_F_ADD) {
      epi.ops[i].t[0] = host.input(TENON_F32, {static_cast<int64_t>(step.rows), n}, addend(step, i, n));
    }
  }
  std::vector<tenon_tid> stores;
  // A file's mapping may be aligned to nothing.
  const uint64_t off = (footprint_.flags & TENON_FOOTPRINT_IN_PLACE) != 0 ? 1 : 0;
  for (const std::vector<uint8_t>& s : stores_) {
    const auto bytes = static_cast<int64_t>(s.size());
    const tenon_tid id = host.slice(host.store(s.size() + off), sdk::tensor(TENON_U8, {bytes}), off);
    std::memcpy(host.data(id), s.data(), s.size());
    stores.push_back(id);
  }
  auto call = sdk::abi_struct<tenon_linear_call>();
  call.x = x, call.y = y, call.store = stores.data();
  call.pro = pro.get(), call.epi = epi.get(), call.claim = &claim;
  if (step.own_live) call.row_live = host.input(TENON_U32, {1}, std::vector<uint32_t>{step.live});
  if (table_->record(component_->self(), site_.get(), &call, host.recorder(), &why) != TENON_OK) return text;
  return host.error();
}

std::vector<float> QuantizedSite::input(const StepCase& step) const {
  const auto width = static_cast<size_t>(k_ + step.pitch);
  if (!step.unit) return random_values(step.rows * width, step.seed);
  std::vector<float> x(step.rows * width);
  for (uint32_t r = 0; r < step.rows; ++r) x[r * width + r] = 1;
  return x;
}

void QuantizedSite::learn() {
  const auto k = static_cast<uint32_t>(k_);
  const std::vector<float> columns = run({.rows = k, .live = k, .unit = true}, false);
  const size_t n = columns.size() / k;
  for (size_t m = 0, first = 0; m < held_.size(); first += static_cast<size_t>(case_.rows[m++])) {
    for (size_t i = 0; i < held_[m].size(); ++i) held_[m][i] = columns[i % k * n + first + i / k];
  }
}

std::vector<float> QuantizedSite::run(const StepCase& step, bool fused, uint64_t seed) const {
  OpRunner host(OpRunner::bounds({.rows = step.rows}));
  host.set_live(step.own_live ? step.rows : step.live);
  int64_t n = columns();
  if (fused && std::count(step.epilogue.begin(), step.epilogue.end(), TENON_F_SILU_MUL) != 0) n /= 2;
  const auto strided = [&](int64_t width) {
    tenon_tensor t = sdk::tensor(TENON_F32, {static_cast<int64_t>(step.rows), width});
    t.stride[0] += 4 * static_cast<int64_t>(step.pitch);
    return t;
  };
  std::vector<float> x = input(step);
  x.resize(x.size() - step.pitch);
  const tenon_tid x_id = host.strided_input(strided(k_), x.data()), y_id = host.strided_output(strided(n));
  std::string problem = emit(host, step, fused, x_id, y_id);
  if (problem.empty()) problem = host.run(seed);
  EXPECT_EQ(problem, "");
  std::vector<float> y = host.f32(y_id);
  for (size_t i = step.live * static_cast<size_t>(n); i < y.size(); ++i) {
    EXPECT_TRUE(std::isnan(y[i])) << "a row past the live ones was written";
    if (!std::isnan(y[i])) break;
  }
  y.resize(step.live * static_cast<size_t>(n));
  return y;
}

QuantizedSite::Exact QuantizedSite::exact(const StepCase& step, bool fused) const {
  const std::vector<float> x = input(step), norm = norm_weight(k_, step.seed);
  Exact out;
  for (uint32_t r = 0; r < step.live; ++r) {
    const float* in = &x[r * static_cast<size_t>(k_ + step.pitch)];
    std::vector<double> row(in, in + k_);
    if (fused && step.norm) {
      double square = 0;
      for (const double v : row) square += v * v;
      const double scale = 1 / std::sqrt(square / static_cast<double>(k_) + double{kEps});
      for (size_t i = 0; i < row.size(); ++i) row[i] *= scale * double{norm[i]};
    }
    std::vector<double> y, magnitude;
    for (size_t m = 0; m < held_.size(); ++m) {
      for (int64_t c = 0; c < case_.rows[m]; ++c) {
        double sum = 0, size = 0;
        for (int64_t i = 0; i < k_; ++i) {
          const double product = row[static_cast<size_t>(i)] * weight(m, c, i);
          sum += product, size += std::abs(product);
        }
        y.push_back(sum), magnitude.push_back(size);
      }
    }
    for (size_t op = 0; fused && op < step.epilogue.size(); ++op) {
      if (step.epilogue[op] == TENON_F_SILU_MUL) {
        const size_t half = y.size() / 2;
        for (size_t c = 0; c < half; ++c) {
          magnitude[c] = (magnitude[c] + 1) * (magnitude[half + c] + 1);
          y[c] = y[c] / (1 + std::exp(-y[c])) * y[half + c];
        }
        y.resize(half), magnitude.resize(half);
        continue;
      }
      const std::vector<float> add = addend(step, op, static_cast<int64_t>(y.size()));
      const size_t at = step.epilogue[op] == TENON_F_ADD ? r * y.size() : 0;
      for (size_t c = 0; c < y.size(); ++c) {
        y[c] += double{add[at + c]}, magnitude[c] += std::abs(double{add[at + c]});
      }
    }
    out.y.insert(out.y.end(), y.begin(), y.end());
    out.magnitude.insert(out.magnitude.end(), magnitude.begin(), magnitude.end());
  }
  return out;
}

std::vector<float> QuantizedSite::embed(const std::vector<int32_t>& index) const {
  const auto rows = static_cast<uint32_t>(index.size());
  OpRunner host(OpRunner::bounds({.rows = rows + 1}));
  host.set_live(rows);
  std::vector<int32_t> padded = index;
  padded.push_back(-1);
  const tenon_tid index_id = host.input(TENON_I32, {static_cast<int64_t>(rows) + 1}, padded);
  const tenon_tid y = host.output(TENON_F32, {static_cast<int64_t>(rows) + 1, k_});
  const tenon_tid store = host.store(stores_[0].size());
  std::memcpy(host.data(store), stores_[0].data(), stores_[0].size());
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  check(table_->record_rows(component_->self(), site_.get(), &store, index_id, y, host.recorder(), &why), text);
  const std::string problem = host.run(1);
  if (!problem.empty()) throw std::runtime_error(problem);
  std::vector<float> values = host.f32(y);
  values.resize(rows * static_cast<size_t>(k_));
  return values;
}

}  // namespace tenon::test
