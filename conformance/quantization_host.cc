// This drives a site as a host does, and computes what it ought to give: the product in float64 over the weights that
// the scheme's definition holds, or, where that is not known, over those that its products with unit vectors show.
#include "conformance/quantization_host.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "conformance/suite.h"
#include "conformance/weight_rows.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/recorder.h"
#include "tenon/sdk/stored.h"

namespace tenon::conformance {
namespace {

constexpr float kEps = 1e-5F;

std::vector<float> random_values(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& f : v) f = normal(random);
  return v;
}

void check(tenon_status status, const char* text) {
  if (status != TENON_OK) fail(text);
}

void require_intact(GuardedMemory& memory) {
  memory.look();
  require(memory.damage().empty(), memory.damage());
}

// This holds a chain with its ops.
struct Chain {
  std::vector<tenon_fop> ops;
  std::vector<const tenon_fop*> pointers;
  tenon_chain chain = sdk::abi_struct<tenon_chain>();

  const tenon_chain* get() {
    pointers.clear();
    for (const tenon_fop& op : ops) pointers.push_back(&op);
    chain.n = static_cast<uint32_t>(ops.size());
    chain.op = pointers.data();
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

// Numbers of e4m3 from 2^e to 2^(e + 1) are 2^(e - 3) apart, those below 2^-6
// like the ones above it; the largest is 448.
double rounded_to_e4m3(double x, float scale) {
  const double q = static_cast<double>(static_cast<float>(x) / scale), magnitude = std::min(std::abs(q), 448.0);
  const double step = std::exp2(std::max(magnitude > 0 ? std::ilogb(magnitude) : -6, -6) - 3);
  return std::copysign(std::rint(magnitude / step) * step, q) * double{scale};
}

// Normal numbers of fp16 from 2^e to 2^(e + 1) are 2^(e - 10) apart.
double rounded_to_half(double x) {
  const double step = std::exp2(std::ilogb(x) - 10);
  return std::rint(x / step) * step;
}

}  // namespace

std::vector<double> FileMatrix::multiplied(const std::vector<double>& row) const {
  std::vector<double> x = row;
  if (x_steps != 0) {
    double largest = 0;
    for (const double v : row) largest = std::max(largest, std::abs(v) < x_outlier ? std::abs(v) : 0);
    const double step = largest / x_steps;
    for (double& v : x) {
      const bool apart = std::abs(v) >= x_outlier;
      v = apart ? rounded_to_half(v) : step > 0 ? std::clamp(std::rint(v / step), -127.0, 127.0) * step : 0;
    }
  }
  if (x_scale != 0) {
    for (double& v : x) v = rounded_to_e4m3(v, x_scale);
  }
  for (size_t begin = 0, end = 0; x_group != 0 && begin < x.size(); begin = end) {
    end = std::min(begin + static_cast<size_t>(x_group), x.size());
    double largest = 0;
    for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(x[i]));
    const float scale = static_cast<float>(largest) / 448;
    const float used = x_powers ? std::exp2(std::ceil(std::log2(scale))) : scale;
    for (size_t i = begin; largest > 0 && i < end; ++i) x[i] = rounded_to_e4m3(x[i], used);
  }
  return x;
}

FileMatrix SiteCase::matrix(size_t m, std::mt19937& random, uint32_t set) const {
  if (stored) return stored({rows[m], k, set}, random);
  FileMatrix made;
  const tenon_stored plain = {"weight", source[m], 2, {rows[m], k, 0, 0}};
  made.tensors = {
      {plain, random_rows(source[m], static_cast<uint32_t>(rows[m]), static_cast<uint32_t>(k), scale, random)}};
  made.weights.resize(static_cast<size_t>(rows[m] * k));
  sdk::unpack_row(source[m], made.tensors.front().bytes.data(), made.weights.size(), made.weights.data());
  return made;
}

std::vector<FileMatrix> SiteCase::matrices() const {
  std::mt19937 random(seed);
  std::vector<FileMatrix> all;
  for (uint32_t set = 0; set < sets(); ++set) {
    for (size_t m = 0; m < rows.size(); ++m) all.push_back(matrix(m, random, set));
  }
  return all;
}

LinearDescription::LinearDescription(const SiteCase& c) : linear(sdk::abi_struct<tenon_linear>()), site(c) {
  std::mt19937 random(1);
  for (size_t m = 0; m < site.rows.size(); ++m) {
    std::vector<tenon_stored>& tensors = tensors_.emplace_back();
    if (!site.stored) tensors.push_back({"weight", site.source[m], 2, {site.rows[m], site.k, 0, 0}});
    if (!site.stored) continue;
    for (const FileMatrix::Tensor& t : site.matrix(m, random).tensors) tensors.push_back(t.stored);
  }
  for (size_t set = 0; set < site.sets(); ++set) {
    for (const auto& t : tensors_) matrices_.push_back({"test.matrix", static_cast<uint32_t>(t.size()), 0, t.data()});
  }
  linear.path = "test.site";
  linear.description = site.description.c_str();
  linear.n_mats = static_cast<uint32_t>(site.rows.size());
  linear.x_format = linear.y_format = TENON_F32;
  linear.out_dim = site.rows.data();
  linear.matrix = matrices_.data();
  linear.in_dim = site.k;
  linear.experts = site.experts;
  linear.rows_wanted = site.experts == 0 && site.lookup ? 1 : 0;
  linear.product_wanted = 1;
}

void QuantizedSite::load_matrix(uint32_t mat, uint32_t pass, uint32_t rows_a_load, void* const* stores, void* scratch) {
  const Device& device = component_->device();
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  const int64_t all = case_.rows[mat % case_.rows.size()];
  const auto rows = static_cast<uint64_t>(all);
  if ((footprint_.flags & TENON_FOOTPRINT_WHOLE) != 0) rows_a_load = UINT32_MAX;
  for (uint64_t row = 0; row < rows; row += rows_a_load) {
    auto src = sdk::abi_struct<tenon_rows>();
    src.mat = mat;
    src.pass = pass;
    src.row0 = row;
    src.rows = std::min<uint64_t>(rows_a_load, rows - row);
    std::vector<std::unique_ptr<GuardedMemory>> data;
    std::vector<tenon_slice> slices;
    for (const FileMatrix::Tensor& t : file_[mat].tensors) {
      const uint64_t row_bytes = sdk::row_bytes(t.stored, all);
      const uint64_t bytes = row_bytes != 0 ? src.rows * row_bytes : t.bytes.size();
      data.push_back(std::make_unique<GuardedMemory>(device, bytes, std::string("rows of ") + t.stored.name));
      data.back()->write(t.bytes.data() + row * row_bytes, 0, bytes);
      slices.push_back({data.back()->data(), bytes});
    }
    src.tensor = slices.data();
    check(table_->load(component_->self(), site_.get(), &src, stores, scratch, device.queue(), &why), text);
    device.wait();
    for (const auto& memory : data) require_intact(*memory);
  }
}

void QuantizedSite::load(uint32_t rows_a_load) {
  const Device& device = component_->device();
  std::vector<void*> pointers;
  for (uint32_t i = 0; i < footprint_.n_stores; ++i) {
    stores_.push_back(std::make_unique<GuardedMemory>(device, footprint_.store_bytes[i], "store " + std::to_string(i)));
    stores_.back()->fill(kPoison);
    pointers.push_back(stores_.back()->data());
  }
  GuardedMemory scratch(device, footprint_.load_bytes, "the scratch of load()");
  scratch.fill(kPoison);
  for (uint32_t pass = 0; pass < std::max(footprint_.passes, 1U); ++pass) {
    for (uint32_t mat = 0; mat < file_.size(); ++mat) {
      load_matrix(mat, pass, rows_a_load, pointers.data(), scratch.data());
    }
  }
  require_intact(scratch);
  for (const auto& store : stores_) require_intact(*store);
  if ((footprint_.flags & TENON_FOOTPRINT_IN_PLACE) == 0) return;
  require(stores_.size() == file_.size(), "a scheme that works in place must have a store for each matrix");
  for (size_t m = 0; m < stores_.size(); ++m) {
    require(file_[m].tensors.size() == 1 && stores_[m]->remember() == file_[m].tensors.front().bytes,
            "a scheme that works in place must load the file's bytes");
  }
}

int64_t QuantizedSite::columns() const {
  int64_t n = 0;
  for (const int64_t r : case_.rows) n += r;
  return n;
}

// These stand around a step's product.
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
  description.linear.pro = chains.pro.get();
  description.linear.epi = chains.epi.get();
  auto claim = sdk::abi_struct<tenon_claim>();
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  check(table_->claim(component_->self(), &description.linear, &bounds, &claim, &why), text);
  return claim;
}

QuantizedSite::QuantizedSite(std::unique_ptr<Component> scheme, const SiteCase& site, uint32_t rows_a_load,
                             const Definition& definition, const StepCase& around)
    : component_(std::move(scheme)), table_(&component_->table<tenon_quantization>()), case_(site), k_(site.k) {
  file_ = site.matrices();
  for (const FileMatrix& m : file_) held_.push_back(definition ? definition(m.weights, k_) : m.weights);
  Chains chains(around, true);
  LinearDescription description(case_);
  description.linear.pro = chains.pro.get();
  description.linear.epi = chains.epi.get();
  const tenon_claim claim = this->claim(OpRunner::bounds({.rows = around.rows}), chains);
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  const tenon_claim* claims[] = {&claim};
  void* made = nullptr;
  check(table_->bind(component_->self(), &description.linear, claims, 1, &made, &why), text);
  site_ = {made, [this](void* p) { table_->unbind(component_->self(), p); }};
  footprint_ = sdk::abi_struct<tenon_footprint>();
  check(table_->footprint(component_->self(), site_.get(), &footprint_, &why), text);
  load(rows_a_load);
}

bool QuantizedSite::claims(const StepCase& step) const {
  Chains chains(step, true);
  const tenon_claim made = claim(OpRunner::bounds({.rows = step.rows}), chains);
  require(made.pro <= chains.pro.ops.size() && made.epi <= chains.epi.ops.size(), "claims more ops than there are");
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
  const bool mapped = (footprint_.flags & TENON_FOOTPRINT_IN_PLACE) != 0 && host.device().walks();
  const uint64_t off = mapped ? 1 : 0;
  for (const auto& s : stores_) {
    const auto bytes = static_cast<int64_t>(s->bytes());
    const tenon_tid id = host.slice(host.store(s->bytes() + off), sdk::tensor(TENON_U8, {bytes}), off);
    host.write(id, s->data());
    stores.push_back(id);
  }
  auto call = sdk::abi_struct<tenon_linear_call>();
  call.x = x;
  call.y = y;
  call.store = stores.data();
  call.pro = pro.get();
  call.epi = epi.get();
  call.claim = &claim;
  if (case_.experts != 0) call.expert = host.input(TENON_I32, {static_cast<int64_t>(step.rows)}, step.expert);
  if (step.own_live) call.row_live = host.input(TENON_U32, {1}, std::vector<uint32_t>{step.live});
  if (table_->record(component_->self(), site_.get(), &call, host.recorder(), &why) != TENON_OK) return text;
  return host.error();
}

std::vector<float> QuantizedSite::input(const StepCase& step) const {
  const auto width = static_cast<size_t>(k_ + step.pitch);
  if (!step.x.empty()) return step.x;
  if (!step.unit) return random_values(step.rows * width, step.seed);
  std::vector<float> x(step.rows * width);
  for (uint32_t r = 0; r < step.rows; ++r) x[r * width + r] = 1;
  return x;
}

void QuantizedSite::learn() {
  const auto k = static_cast<uint32_t>(k_);
  const size_t mats = case_.rows.size();
  for (size_t set = 0; set < case_.sets(); ++set) {
    StepCase step{.rows = k, .live = k, .unit = true};
    if (case_.experts != 0) step.expert.assign(k, static_cast<int32_t>(set));
    const std::vector<float> columns = run(step, false);
    const size_t n = columns.size() / k;
    for (size_t m = 0, first = 0; m < mats; first += static_cast<size_t>(case_.rows[m++])) {
      std::vector<float>& held = held_[set * mats + m];
      const auto unit = static_cast<float>(file_[set * mats + m].multiplied({1})[0]);
      for (size_t i = 0; i < held.size(); ++i) held[i] = columns[i % k * n + first + i / k] / unit;
    }
  }
}

std::vector<float> QuantizedSite::run(const StepCase& step, bool fused, uint64_t seed) const {
  const uint32_t seqs = step.sequences ? step.rows : 1;
  OpRunner host(OpRunner::bounds({.rows = step.rows, .seqs = seqs, .rows_per_seq = step.rows / seqs}),
                component_->device(), step.most_out_rows);
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
  require(problem.empty(), problem);
  std::vector<float> y = host.f32(y_id);
  for (size_t i = step.live * static_cast<size_t>(n); i < y.size(); ++i) {
    if (!std::isnan(y[i])) fail("a row past the live ones was written");
  }
  y.resize(step.live * static_cast<size_t>(n));
  return y;
}

tenon_cost QuantizedSite::cost(const StepCase& step) const {
  OpRunner host(OpRunner::bounds({.rows = step.rows}), component_->device());
  const auto rows = static_cast<int64_t>(step.rows);
  const std::vector<float> x = input(step);
  const std::string problem =
      emit(host, step, false, host.input(TENON_F32, {rows, k_}, x), host.output(TENON_F32, {rows, columns()}));
  require(problem.empty(), problem);
  tenon_cost sum{};
  for (const ProgramOp& op : host.program().ops()) {
    for (int i = 0; i < 3; ++i) {
      sum.read[i] += op.cost.read[i];
      sum.written[i] += op.cost.written[i];
      sum.flops[i] += op.cost.flops[i];
    }
  }
  return sum;
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
    const int32_t expert = case_.experts != 0 ? step.expert[r] : 0;
    const size_t mats = case_.rows.size(), first = expert > 0 ? static_cast<size_t>(expert) * mats : 0;
    for (size_t m = 0; m < mats; ++m) {
      const std::vector<double> x_of = file_[first + m].multiplied(row);
      for (int64_t c = 0; c < case_.rows[m]; ++c) {
        double sum = 0, size = 0;
        for (int64_t i = 0; expert >= 0 && i < k_; ++i) {
          const double product = x_of[static_cast<size_t>(i)] * weight(first + m, c, i);
          sum += product;
          size += std::abs(product);
        }
        y.push_back(sum);
        magnitude.push_back(size);
      }
    }
    for (size_t op = 0; fused && op < step.epilogue.size(); ++op) {
      if (step.epilogue[op] == TENON_F_SILU_MUL) {
        const size_t half = y.size() / 2;
        for (size_t c = 0; c < half; ++c) {
          magnitude[c] = (magnitude[c] + 1) * (magnitude[half + c] + 1);
          y[c] = y[c] / (1 + std::exp(-y[c])) * y[half + c];
        }
        y.resize(half);
        magnitude.resize(half);
        continue;
      }
      const std::vector<float> add = addend(step, op, static_cast<int64_t>(y.size()));
      const size_t at = step.epilogue[op] == TENON_F_ADD ? r * y.size() : 0;
      for (size_t c = 0; c < y.size(); ++c) {
        y[c] += double{add[at + c]};
        magnitude[c] += std::abs(double{add[at + c]});
      }
    }
    out.y.insert(out.y.end(), y.begin(), y.end());
    out.magnitude.insert(out.magnitude.end(), magnitude.begin(), magnitude.end());
  }
  return out;
}

std::vector<float> QuantizedSite::embed(const std::vector<int32_t>& index) const {
  const auto rows = static_cast<uint32_t>(index.size());
  OpRunner host(OpRunner::bounds({.rows = rows + 1}), component_->device());
  host.set_live(rows);
  std::vector<int32_t> padded = index;
  padded.push_back(-1);
  const tenon_tid index_id = host.input(TENON_I32, {static_cast<int64_t>(rows) + 1}, padded);
  const tenon_tid y = host.output(TENON_F32, {static_cast<int64_t>(rows) + 1, k_});
  std::vector<tenon_tid> stores;
  for (const auto& s : stores_) {
    stores.push_back(host.store(s->bytes()));
    host.write(stores.back(), s->data());
  }
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  check(table_->record_rows(component_->self(), site_.get(), stores.data(), index_id, y, host.recorder(), &why), text);
  const std::string problem = host.run(1);
  require(problem.empty(), problem);
  std::vector<float> values = host.f32(y);
  values.resize(rows * static_cast<size_t>(k_));
  return values;
}

}  // namespace tenon::conformance
