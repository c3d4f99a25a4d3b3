// Here are the formulas of the small ops in float64, one function each, and rows for them to work on. They are written
// from the definitions and share no code with any plugin; an op or a table that is not known here has no case.
#include "conformance/op_cases.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>

#include "tenon/sdk/error.h"

namespace tenon::conformance {
namespace {

using Row = std::vector<double>;

constexpr int32_t kExperts = 3;  // an op that has a table of experts has so many

float number_of(const std::string& name) {
  return name == "eps" ? 1e-5F : 1.5F;
}

int32_t integer_of(const std::string& name, const OpShape& s) {
  const std::map<std::string, int32_t> known = {{"q_heads", s.q_heads}, {"kv_heads", s.kv_heads},
                                                {"k_dim", s.k_dim},     {"v_dim", s.v_dim},
                                                {"rotated", s.rotated}, {"interleaved", s.interleaved},
                                                {"chosen", 2},          {"experts", kExperts},
                                                {"count", kExperts},    {"times", 3}};
  const auto it = known.find(name);
  return it == known.end() ? 1 : it->second;
}

// Returns the shape of an argument; empty if it is not known here.
std::vector<int64_t> shape_of(const std::string& op, const tenon_op_arg& arg, const OpInputs& in) {
  if (arg.kind == TENON_ARG_VECTOR) return {in.columns};
  const std::string name = arg.name;
  if (op == "expert_sum") return {in.shape.rows, name == "experts" ? 2 : name == "scores" ? kExperts : in.columns / 2};
  if (arg.kind == TENON_ARG_ROWS) return {in.shape.rows, in.columns};
  if (op == "rope") return {kPositions, in.shape.rotated};
  if (op == "qk_norm") return {in.shape.k_dim};
  if (op == "expert_bias") return {kExperts, in.columns};
  return {};
}

Row rms_norm(const Row& x, const float* weight, double eps) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  const double scale = 1 / std::sqrt(sum / static_cast<double>(x.size()) + eps);
  Row y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back(x[i] * scale * static_cast<double>(weight[i]));
  return y;
}

Row layer_norm(const Row& x, const OpInputs& in) {
  double mean = 0, variance = 0;
  const auto n = static_cast<double>(x.size());
  for (const double v : x) mean += v / n;
  for (const double v : x) variance += (v - mean) * (v - mean) / n;
  Row y;
  for (size_t i = 0; i < x.size(); ++i) {
    y.push_back((x[i] - mean) / std::sqrt(variance + static_cast<double>(in.op.f[0])) *
                    static_cast<double>(in.tensor[0][i]) +
                static_cast<double>(in.tensor[1][i]));
  }
  return y;
}

double gelu(double a) {
  return a / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a)));
}

Row gated(const Row& x, bool with_gelu) {
  const size_t n = x.size() / 2;
  Row y;
  for (size_t i = 0; i < n; ++i) {
    const double a = x[i];
    const double gate = with_gelu ? gelu(a) : a / (1 + std::exp(-a));
    y.push_back(gate * x[n + i]);
  }
  return y;
}

Row qk_norm(Row x, const OpInputs& in) {
  const auto dim = static_cast<size_t>(in.shape.k_dim);
  for (size_t h = 0; h < static_cast<size_t>(in.shape.q_heads) + static_cast<size_t>(in.shape.kv_heads); ++h) {
    const auto at = x.begin() + static_cast<ptrdiff_t>(h * dim);
    const Row y =
        rms_norm(Row(at, at + static_cast<ptrdiff_t>(dim)),
                 in.tensor[h < static_cast<size_t>(in.shape.q_heads) ? 0 : 1].data(), static_cast<double>(in.op.f[0]));
    std::copy(y.begin(), y.end(), at);
  }
  return x;
}

Row rope(Row x, const OpInputs& in, int32_t position) {
  const auto half = static_cast<size_t>(in.shape.rotated / 2);
  const float* table = in.tensor[0].data() + position * in.shape.rotated;
  for (size_t h = 0; h < static_cast<size_t>(in.shape.q_heads) + static_cast<size_t>(in.shape.kv_heads); ++h) {
    double* head = x.data() + h * static_cast<size_t>(in.shape.k_dim);
    for (size_t i = 0; i < half; ++i) {
      double& first = head[in.shape.interleaved != 0 ? 2 * i : i];
      double& second = head[in.shape.interleaved != 0 ? 2 * i + 1 : i + half];
      const double c = static_cast<double>(table[2 * i]), s = static_cast<double>(table[2 * i + 1]);
      const double u = first, v = second;
      first = u * c - v * s;
      second = u * s + v * c;
    }
  }
  return x;
}

// Returns the scores from the highest on; of equal ones the first comes first.
std::vector<size_t> by_score(const Row& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  return order;
}

// Returns an f32 that has the bits of a number.
double bits_of(uint32_t number) {
  return static_cast<double>(std::bit_cast<float>(number));
}

Row chosen_experts(const Row& scores, int32_t chosen) {
  const std::vector<size_t> order = by_score(scores);
  Row y;
  for (size_t rank = 0; rank < static_cast<size_t>(chosen); ++rank) {
    y.push_back(bits_of(static_cast<uint32_t>(order[rank])));
  }
  return y;
}

// Returns the experts of rows of expert_sum: two, one, or none.
int32_t summed_expert(size_t row, size_t rank) {
  return row % 3 == 2 || (row % 3 == 1 && rank == 1) ? -1 : static_cast<int32_t>((row + rank) % kExperts);
}

Row expert_sum(const Row& x, const OpInputs& in, size_t row) {
  const bool renormalised = in.op.i[1] != 0;
  const float* scores = in.tensor[1].data() + row * kExperts;
  double sum = 0;
  const auto share = [&](int32_t e) { return std::exp(static_cast<double>(scores[e])); };
  for (size_t i = 0; i < (renormalised ? 2 : size_t{kExperts}); ++i) {
    const int32_t e = renormalised ? summed_expert(row, i) : static_cast<int32_t>(i);
    if (e >= 0) sum += share(e);
  }
  const size_t n = x.size() / 2;
  Row y;
  for (size_t i = 0; i < n; ++i) {
    y.push_back(static_cast<double>(in.tensor[2][row * n + i]));
    for (size_t rank = 0; rank < 2; ++rank) {
      const int32_t e = summed_expert(row, rank);
      if (e >= 0) y.back() += share(e) / sum * x[rank * n + i];
    }
  }
  return y;
}

Row repeat(const Row& x, int32_t times) {
  Row y;
  for (int32_t i = 0; i < times; ++i) y.insert(y.end(), x.begin(), x.end());
  return y;
}

Row clamped_swiglu(const Row& x, double alpha, double limit) {
  const size_t n = x.size() / 2;
  Row y;
  for (size_t i = 0; i < n; ++i) {
    const double gate = std::min(x[i], limit), up = std::clamp(x[n + i], -limit, limit);
    y.push_back(gate / (1 + std::exp(-alpha * gate)) * (up + 1));
  }
  return y;
}

// The experts of rows are -1, 0, 1, ... in turns, the last of which there is not.
int32_t expert_of_row(size_t row) {
  return static_cast<int32_t>(row % (kExperts + 2)) - 1;
}

std::optional<Row> row_of(const std::string& name, const OpInputs& in, const Row& x, size_t row) {
  const auto each = [&](auto f) {
    Row y;
    for (size_t i = 0; i < x.size(); ++i) y.push_back(f(x[i], i));
    return y;
  };
  const double number = static_cast<double>(in.op.f[0]);
  if (name == "bias") return each([&](double v, size_t i) { return v + static_cast<double>(in.tensor[0][i]); });
  if (name == "add") {
    return each([&](double v, size_t i) { return v + static_cast<double>(in.tensor[0][row * x.size() + i]); });
  }
  if (name == "scale") return each([&](double v, size_t) { return number * v; });
  if (name == "softcap") return each([&](double v, size_t) { return number * std::tanh(v / number); });
  if (name == "gelu") return each([](double v, size_t) { return gelu(v); });
  if (name == "rms_norm") return rms_norm(x, in.tensor[0].data(), number);
  if (name == "layer_norm") return layer_norm(x, in);
  if (name == "silu_mul" || name == "gelu_mul") return gated(x, name == "gelu_mul");
  if (name == "expert_bias") {
    const int32_t expert = expert_of_row(row);
    const bool is_one = expert >= 0 && expert < kExperts;
    const size_t first = is_one ? static_cast<size_t>(expert) * x.size() : 0;
    return each([&](double v, size_t i) { return v + (is_one ? static_cast<double>(in.tensor[0][first + i]) : 0); });
  }
  if (name == "clamped_swiglu") return clamped_swiglu(x, number, static_cast<double>(in.op.f[1]));
  if (name == "chosen_experts") return chosen_experts(x, in.op.i[0]);
  if (name == "expert_sum") return expert_sum(x, in, row);
  if (name == "repeat") return repeat(x, in.op.i[0]);
  if (name == "live_rows") return Row{bits_of(in.shape.live * static_cast<uint32_t>(in.op.i[0]))};
  if (name == "qk_norm") return qk_norm(x, in);
  if (name == "rope") return rope(x, in, in.position[row]);
  return std::nullopt;
}

}  // namespace

std::optional<OpInputs> inputs_of(const std::string& name, const tenon_small_op& table, const OpShape& shape) {
  OpInputs in;
  in.shape = shape;
  in.columns = shape.columns;
  if (name == "live_rows") in.least_rows = 1;
  in.op = sdk::abi_struct<tenon_fop>();
  in.op.id = table.id;
  for (uint32_t a = 0; a < table.n_args; ++a) {
    const tenon_op_arg& arg = table.arg[a];
    if (arg.kind == TENON_ARG_NUMBER) in.op.f[arg.index] = number_of(arg.name);
    if (arg.kind == TENON_ARG_INTEGER) in.op.i[arg.index] = integer_of(arg.name, shape);
    if (std::string(arg.name) == "q_heads") {
      in.columns = int64_t{shape.q_heads + shape.kv_heads} * shape.k_dim + int64_t{shape.kv_heads} * shape.v_dim;
    }
  }
  std::mt19937 random(7);
  std::uniform_real_distribution<float> value(-2, 2);
  const auto fill = [&](std::vector<float>& to, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to.push_back(value(random));
  };
  fill(in.x, shape.rows * in.columns);
  // Row 1 is zeros and row 2 is small, so that an op's eps decides what becomes of them.
  for (int64_t i = in.columns; i < std::min<int64_t>(shape.rows, 3) * in.columns; ++i) {
    in.x[static_cast<size_t>(i)] *= i < 2 * in.columns ? 0 : 1e-3F;
  }
  for (uint32_t a = 0; a < table.n_args; ++a) {
    const tenon_op_arg& arg = table.arg[a];
    if (arg.kind > TENON_ARG_ROWS) continue;
    std::vector<int64_t>& dims = in.tensor_shape[arg.index] = shape_of(name, arg, in);
    if (dims.empty()) return std::nullopt;
    fill(in.tensor[arg.index], dims.size() == 2 ? dims[0] * dims[1] : dims[0]);
  }
  for (size_t r = 0; name == "expert_bias" && r < shape.rows; ++r) {
    in.tensor[1][r * static_cast<size_t>(in.columns)] = std::bit_cast<float>(expert_of_row(r));
  }
  for (size_t i = 0; name == "expert_sum" && i < 2 * size_t{shape.rows}; ++i) {
    in.tensor[0][i] = std::bit_cast<float>(summed_expert(i / 2, i % 2));
  }
  for (uint32_t r = 0; r < shape.rows; ++r) in.position.push_back(static_cast<int32_t>(r * 5 % kPositions));
  return in;
}

std::optional<std::vector<double>> expected_of(const std::string& name, const OpInputs& in) {
  std::vector<double> all;
  for (size_t r = 0; r < in.made_rows(); ++r) {
    const auto begin = in.x.begin() + static_cast<ptrdiff_t>(r) * in.columns;
    const std::optional<Row> y = row_of(name, in, Row(begin, begin + in.columns), r);
    if (!y) return std::nullopt;
    all.insert(all.end(), y->begin(), y->end());
  }
  return all;
}

}  // namespace tenon::conformance
