// Every small op owes this: it is equal to float64 where the formula is known here, and for all of them that only live
// rows are written, that strides are kept to, and that in place gives the same bits.
#include <cmath>

#include "conformance/op_cases.h"
#include "conformance/suites.h"
#include "tenon/core/error.h"
#include "tenon/sdk/recorder.h"

namespace tenon::conformance {
namespace {

constexpr OpShape kShapes[] = {
    {.rows = 1, .live = 1},
    {.rows = 7, .live = 7, .columns = 36},
    {.rows = 9, .live = 5, .columns = 130, .q_heads = 6, .kv_heads = 3, .k_dim = 24, .v_dim = 24, .rotated = 24},
    {.rows = 3, .live = 2, .columns = 2, .q_heads = 4, .kv_heads = 2, .k_dim = 16, .v_dim = 8, .rotated = 8},
    {.rows = 4, .live = 4, .q_heads = 3, .kv_heads = 1, .k_dim = 8, .v_dim = 32, .rotated = 8, .interleaved = 1},
    {.rows = 5, .live = 0},
};

// Sums in f32 over 130 columns may differ by so much, and so may CUDA's expf and tanhf.
constexpr double kTolerance = 1e-5;

enum class Live { kOfTheStep, kOfTheOp };

// This is an op that was recorded and run, with its tensors.
class Recorded {
 public:
  Recorded(const Component& component, const OpInputs& in, Live live, bool in_place, bool strided)
      : in_(in),
        host_(OpRunner::bounds(
                  {.rows = live == Live::kOfTheOp ? in.shape.rows + 3 : in.shape.rows, .out_rows = in.shape.rows}),
              component.device()) {
    const auto& table = component.table<tenon_small_op>();
    // An op before the head works on the rows whose logits are wanted; the step has more.
    host_.set_live(live == Live::kOfTheOp ? in.shape.rows + 3 : in.shape.live, 1, in.shape.live);
    sdk::Recorder rec(host_.recorder());
    tenon_fop op = in.op;
    for (size_t i = 0; i < 4; ++i) {
      if (in.tensor[i].empty()) continue;
      const std::vector<int64_t>& d = in.tensor_shape[i];
      op.t[i] = d.size() == 2 ? host_.input(TENON_F32, {d[0], d[1]}, in.tensor[i])
                              : host_.input(TENON_F32, {d[0]}, in.tensor[i]);
    }
    if (live == Live::kOfTheOp) {
      op.live = rec.slice(rec.step(TENON_STEP_LIVE), sdk::tensor(TENON_U32, {1}), 2 * sizeof(uint32_t));
    }
    const auto positions = host_.step_i32(TENON_STEP_POS);
    for (size_t r = 0; r < in.shape.rows; ++r) positions[r] = in.position[r];
    Reason why;
    why.check(table.columns(component.self(), &op, in.columns, &columns_, &why.raw), "columns failed");
    require(columns_ > 0, "makes " + std::to_string(columns_) + " columns");
    make_tensors(in_place, strided);
    why.check(table.record(component.self(), &op, x_, y_, host_.recorder(), &why.raw), "record failed");
    const std::string fault = host_.run(3);
    require(fault.empty(), fault);
    require(rest_is_untouched(in_place), "a row past the live ones was written");
  }

  // Returns the rows that are made.
  std::vector<float> y() const {
    std::vector<float> all = host_.f32(y_);
    all.resize(static_cast<size_t>(in_.made_rows() * columns_));
    return all;
  }

 private:
  // Says whether the rows that are not made are as they were.
  bool rest_is_untouched(bool in_place) const {
    const std::vector<float> all = host_.f32(y_);
    for (size_t i = static_cast<size_t>(in_.made_rows() * columns_); i < all.size(); ++i) {
      if (in_place ? all[i] != in_.x[i] : !std::isnan(all[i])) return false;
    }
    return true;
  }
  void make_tensors(bool in_place, bool strided) {
    const auto rows = static_cast<int64_t>(in_.shape.rows);
    const auto view = [&](int64_t columns) {
      tenon_tensor t = sdk::tensor(TENON_F32, {rows, columns});
      if (strided) t.stride[0] += 12;
      return t;
    };
    const tenon_tensor t = view(in_.columns);
    std::vector<float> spread(static_cast<size_t>(rows * t.stride[0] / 4));
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(in_.x.begin() + r * in_.columns, in_.columns, spread.begin() + r * t.stride[0] / 4);
    }
    x_ = host_.strided_input(t, spread.data());
    y_ = in_place ? x_ : host_.strided_output(view(columns_));
  }

  const OpInputs& in_;
  OpRunner host_;
  int64_t columns_ = 0;
  tenon_tid x_ = 0, y_ = 0;
};

// Calls f(component, inputs) for every shape.
template <class F>
void each_shape(const Subject& subject, const F& f) {
  const std::unique_ptr<Component> component = subject.open();
  for (const OpShape& shape : kShapes) {
    const auto in = inputs_of(subject.loaded().info.name, component->table<tenon_small_op>(), shape);
    if (!in) throw NotTested("it asks for a table whose shape is not known here");
    try {
      f(*component, *in);
    } catch (const Error& e) {
      fail(std::to_string(shape.rows) + " rows of " + std::to_string(in->columns) +
           " columns: " + e.diagnostics().front().message);
    }
  }
}

void writes_live_rows(const Subject& subject) {
  each_shape(subject, [](const Component& component, const OpInputs& in) {
    for (const Live live : {Live::kOfTheStep, Live::kOfTheOp}) {
      for (const bool strided : {false, true}) Recorded(component, in, live, false, strided);
    }
  });
}

void gives_the_same_bits_in_place(const Subject& subject) {
  each_shape(subject, [](const Component& component, const OpInputs& in) {
    if ((component.table<tenon_small_op>().flags & TENON_SMALL_OP_IN_PLACE) == 0) return;
    const Recorded apart(component, in, Live::kOfTheStep, false, false),
        same(component, in, Live::kOfTheOp, true, true);
    require(same.y() == apart.y(), "gives other bits in place");
  });
}

void is_equal_to_float64(const Subject& subject) {
  each_shape(subject, [&](const Component& component, const OpInputs& in) {
    const std::optional<std::vector<double>> expected = expected_of(subject.loaded().info.name, in);
    if (!expected) throw NotTested("its formula is not known here");
    const std::vector<float> y = Recorded(component, in, Live::kOfTheStep, false, true).y();
    require(y.size() == expected->size(), "answers " + std::to_string(y.size()) + " values");
    for (size_t i = 0; i < y.size(); ++i) {
      const double wanted = (*expected)[i], error = std::abs(double{y[i]} - wanted);
      if (error <= kTolerance * (1 + std::abs(wanted))) continue;
      fail("value " + std::to_string(i) + " is " + std::to_string(y[i]) + ", in float64 " + std::to_string(wanted));
    }
  });
}

}  // namespace

std::vector<Check> op_checks() {
  return {{kBounds, &writes_live_rows}, {"in_place", &gives_the_same_bits_in_place}, {"float64", &is_equal_to_float64}};
}

}  // namespace tenon::conformance
