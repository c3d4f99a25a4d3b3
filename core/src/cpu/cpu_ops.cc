// The small ops as operations of their own, for what no neighbour claims. Rows are f32, contiguous inside, strided
// between.
#include <cmath>

#include "cpu_device.h"
#include "tenon/sdk/recorder.h"

namespace tenon {
namespace {

using sdk::OpSpec;
using sdk::Part;
using sdk::Recorder;

constexpr uint32_t kRowsAChunk = 4;

// Operands of every row op: 0 x, 1 y, 2 live, then its own.
struct RowArgs {
  int64_t columns, x_stride, y_stride;  // elements
  float value;
  int32_t rotated, pairing, q_heads, kv_heads, head_dim, padding;
  int64_t other_stride;
};

// f(row, x, y) for each live row of the part.
template <class F>
void each_row(const RowArgs& a, const Part& p, F&& f) {
  const uint32_t live = p.ptr<uint32_t>(2)[0];
  for (uint32_t chunk = p.begin(); chunk < p.end(); ++chunk) {
    for (uint32_t r = chunk * kRowsAChunk; r < std::min((chunk + 1) * kRowsAChunk, live); ++r) {
      f(r, p.ptr<const float>(0) + r * a.x_stride, p.ptr<float>(1) + r * a.y_stride);
    }
  }
}

void normalize(const float* x, const float* weight, float* y, int64_t n, float eps) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const auto scale = static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(n) + static_cast<double>(eps)));
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * scale * weight[i];
}

void rmsnorm(const RowArgs& a, const Part& p) {
  each_row(a, p,
           [&](uint32_t, const float* x, float* y) { normalize(x, p.ptr<const float>(3), y, a.columns, a.value); });
}
void bias(const RowArgs& a, const Part& p) {
  each_row(a, p, [&](uint32_t, const float* x, float* y) {
    for (int64_t i = 0; i < a.columns; ++i) y[i] = x[i] + p.ptr<const float>(3)[i];
  });
}
void add(const RowArgs& a, const Part& p) {
  each_row(a, p, [&](uint32_t r, const float* x, float* y) {
    const float* other = p.ptr<const float>(3) + r * a.other_stride;
    for (int64_t i = 0; i < a.columns; ++i) y[i] = x[i] + other[i];
  });
}
void silu_mul(const RowArgs& a, const Part& p) {
  each_row(a, p, [&](uint32_t, const float* x, float* y) {
    const int64_t n = a.columns / 2;
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] / (1.0f + std::exp(-x[i])) * x[n + i];
  });
}
void softcap(const RowArgs& a, const Part& p) {
  each_row(a, p, [&](uint32_t, const float* x, float* y) {
    for (int64_t i = 0; i < a.columns; ++i) y[i] = a.value * std::tanh(x[i] / a.value);
  });
}
void qk_norm(const RowArgs& a, const Part& p) {
  each_row(a, p, [&](uint32_t, const float* x, float* y) {
    for (int32_t h = 0; h < a.q_heads + a.kv_heads; ++h) {
      const float* weight = p.ptr<const float>(h < a.q_heads ? 3 : 4);
      normalize(x + h * a.head_dim, weight, y + h * a.head_dim, a.head_dim, a.value);
    }
    if (x == y) return;
    const int64_t done = int64_t{a.q_heads + a.kv_heads} * a.head_dim;
    std::copy(x + done, x + a.columns, y + done);
  });
}
void rope(const RowArgs& a, const Part& p) {
  const int32_t half = a.rotated / 2;
  each_row(a, p, [&](uint32_t r, const float* x, float* y) {
    const float* table = p.ptr<const float>(3) + int64_t{p.ptr<const int32_t>(4)[r]} * a.rotated;
    if (x != y) std::copy(x, x + a.columns, y);
    for (int32_t h = 0; h < a.q_heads + a.kv_heads; ++h) {
      float* head = y + h * a.head_dim;
      for (int32_t i = 0; i < half; ++i) {
        float& first = head[a.pairing == 0 ? i : 2 * i];
        float& second = head[a.pairing == 0 ? i + half : 2 * i + 1];
        const float c = table[2 * i], s = table[2 * i + 1], u = first, v = second;
        first = u * c - v * s;
        second = u * s + v * c;
      }
    }
  });
}

struct GatherArgs {
  int64_t columns, x_stride, y_stride;
};
void gather(const GatherArgs& a, const Part& p) {  // 0 x, 1 y, 2 live, 3 out_row
  for (uint32_t i = p.begin(); i < std::min(p.end(), p.ptr<uint32_t>(2)[2]); ++i) {
    const float* x = p.ptr<const float>(0) + p.ptr<const int32_t>(3)[i] * a.x_stride;
    std::copy(x, x + a.columns, p.ptr<float>(1) + i * a.y_stride);
  }
}

// The rows up to the first whose logits are wanted are given; each row behind survives while its token is the one that
// was chosen for its parent.
struct VerifyArgs {
  uint32_t seqs;
};
void verify(const VerifyArgs&, const Part& p) {  // 0 next, 1 accepted, 2 live, 3 out_row, 4 seq_row, 5 token, 6 parent
  const uint32_t seqs = p.ptr<uint32_t>(2)[1], outs = p.ptr<uint32_t>(2)[2];
  const auto* next = p.ptr<const int32_t>(0);
  const auto* out_row = p.ptr<const int32_t>(3);
  const auto* seq_row = p.ptr<const int32_t>(4);
  uint32_t o = 0;
  for (uint32_t s = 0; s < seqs; ++s) {
    const int32_t begin = seq_row[s], end = seq_row[s + 1];
    while (o < outs && out_row[o] < begin) ++o;
    int32_t row = o < outs && out_row[o] < end ? out_row[o] + 1 : end;
    uint32_t parent_out = o;
    while (row < end && parent_out < outs && p.ptr<const int32_t>(6)[row] == out_row[parent_out] &&
           p.ptr<const int32_t>(5)[row] == next[parent_out]) {
      ++row, ++parent_out;
    }
    p.ptr<int32_t>(1)[s] = row - begin;
  }
}

uint32_t row_chunks(uint32_t rows) {
  return (rows + kRowsAChunk - 1) / kRowsAChunk;
}

void record_row_op(const tenon_fop& op, tenon_tid x, tenon_tid y, Recorder& rec) {
  const tenon_tensor from = rec.describe(x), to = rec.describe(y);
  RowArgs a{};
  a.columns = from.dim[1];
  a.x_stride = from.stride[0] / 4, a.y_stride = to.stride[0] / 4;
  a.value = op.f[0];
  std::vector<tenon_operand> operands = {{x, TENON_READ}, {y, TENON_WRITE}, {rec.step(TENON_STEP_LIVE), TENON_READ}};
  for (const tenon_tid t : op.t) {
    if (t != 0) operands.push_back({t, TENON_READ});
  }
  const double bytes = 4.0 * static_cast<double>(a.columns);
  OpSpec spec{.name = "", .operands = {}, .chunks = {row_chunks(static_cast<uint32_t>(from.dim[0]))}, .kind = op.id};
  spec.cost.read[1] = bytes, spec.cost.written[1] = bytes, spec.cost.flops[1] = static_cast<double>(a.columns);
  const auto heads = [&] {
    a.rotated = op.i[0], a.pairing = op.i[1], a.q_heads = op.i[2], a.kv_heads = op.i[3];
    a.head_dim = static_cast<int32_t>(a.columns / (a.q_heads + 2 * a.kv_heads));
  };
  const auto emit = [&]<auto Fn>(const char* name) {
    spec.name = name;
    spec.operands = operands;
    rec.emit<Fn>(spec, a);
  };
  switch (op.id) {
    case TENON_F_RMSNORM:
      return emit.operator()<&rmsnorm>("rmsnorm");
    case TENON_F_BIAS:
      return emit.operator()<&bias>("bias");
    case TENON_F_SILU_MUL:
      return emit.operator()<&silu_mul>("silu_mul");
    case TENON_F_SOFTCAP:
      return emit.operator()<&softcap>("softcap");
    case TENON_F_ADD:
      a.other_stride = rec.describe(op.t[0]).stride[0] / 4;
      return emit.operator()<&add>("add");
    case TENON_F_QK_NORM:
      heads();
      return emit.operator()<&qk_norm>("qk_norm");
    case TENON_F_ROPE:
      heads();
      operands.push_back({rec.step(TENON_STEP_POS), TENON_READ});
      return emit.operator()<&rope>("rope");
    default:
      throw sdk::Refused("device.cpu has no op of its own for id " + std::to_string(op.id));
  }
}

void record_gather(tenon_tid x, tenon_tid y, Recorder& rec) {
  const tenon_tensor from = rec.describe(x), to = rec.describe(y);
  const GatherArgs a{from.dim[1], from.stride[0] / 4, to.stride[0] / 4};
  const tenon_operand operands[] = {{x, TENON_READ},
                                    {y, TENON_WRITE},
                                    {rec.step(TENON_STEP_LIVE), TENON_READ},
                                    {rec.step(TENON_STEP_OUT_ROW), TENON_READ}};
  rec.emit<&gather>(
      {.name = "gather", .operands = operands, .chunks = {rec.bounds().out_rows}, .kind = TENON_F_GATHER_ROWS}, a);
}

void record_verify(tenon_tid next, tenon_tid accepted, Recorder& rec) {
  const tenon_operand operands[] = {{next, TENON_READ},
                                    {accepted, TENON_WRITE},
                                    {rec.step(TENON_STEP_LIVE), TENON_READ},
                                    {rec.step(TENON_STEP_OUT_ROW), TENON_READ},
                                    {rec.step(TENON_STEP_SEQ_ROW), TENON_READ},
                                    {rec.step(TENON_STEP_TOKEN), TENON_READ},
                                    {rec.step(TENON_STEP_PARENT), TENON_READ}};
  rec.emit<&verify>({.name = "verify", .operands = operands, .chunks = {1}, .kind = TENON_F_VERIFY},
                    VerifyArgs{rec.bounds().seqs});
}

}  // namespace

tenon_status record_cpu_op(const tenon_fop& op, tenon_tid x, tenon_tid y, const tenon_recorder* raw,
                           tenon_reason* why) {
  return sdk::guard(why, [&] {
    Recorder rec(raw);
    switch (op.id) {
      case TENON_F_GATHER_ROWS:
        return record_gather(x, y, rec);
      case TENON_F_VERIFY:
        return record_verify(x, y, rec);
      default:
        return record_row_op(op, x, y, rec);
    }
  });
}

}  // namespace tenon
