// Attention on a GPU reads views that plain caches do not have: the CPU's Flash is the model.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>

#include "attention_plugin.h"
#include "tenon/sdk/cpu/kv_reader.h"
#include "tenon/sdk/recorder.h"

namespace tenon::test {
namespace {

using conformance::OpRunner;

constexpr uint32_t kHeads = 2, kGroup = 3, kKeyDim = 64, kSlots = 3, kPageCells = 8, kColumns = 56;
constexpr uint32_t kPages = kSlots * kHeads * kColumns, kCells = kPageCells * kColumns;

struct View {
  std::string name;
  tenon_format codec = TENON_F32;
  uint32_t rule = TENON_POS_LINEAR, sinks = 0, ring = 0, window = 0, flags = 0;
  bool rotated = true;
  uint32_t weight_rows = 0, layer_window = 0, trees = 1;
  int32_t pairing = 0;
  float softcap = 0;
  uint32_t recent = 0;
  uint32_t value_dim = 32;
  uint32_t bound = 0;  // the program has so many rows of a sequence; 0: as many as the step
};
void PrintTo(const View& v, std::ostream* out) {
  *out << v.name;
}

struct Answer {
  std::string fault = {};
  std::vector<float> out = {}, weights = {};
};

// This is a step of a tree in slot 2 and a chain in slot 0, over random cells.
class Step {
 public:
  Step(const View& v, const conformance::Component& attention)
      : v_(v),
        attention_(attention),
        host_(OpRunner::bounds({.rows = std::max(kRows + 1, v.bound),
                                .seqs = 2,
                                .kv_len = kCells,
                                .slots = kSlots,
                                .rows_per_seq = std::max(kTree, v.bound),
                                .trees = v.trees}),
              attention.device()) {}

  Answer run() {
    fill_state();
    make_view();
    auto a = sdk::abi_struct<tenon_attn>();
    a.q_heads = kHeads * kGroup;
    a.kv_heads = kHeads;
    a.k_dim = kKeyDim;
    a.v_dim = v_.value_dim;
    a.window = v_.layer_window;
    a.scale = 0.2f;
    a.softcap = v_.softcap;
    auto rope = sdk::abi_struct<tenon_fop>();
    rope.id = TENON_F_ROPE;
    rope.i[0] = kKeyDim / 2;
    rope.i[1] = v_.pairing;
    rope.i[2] = kHeads * kGroup;
    rope.i[3] = kHeads;
    rope.i[4] = kKeyDim;
    rope.i[5] = v_.value_dim;
    std::vector<float> angles;
    for (uint32_t i = 0; i < kCells * kKeyDim / 4; ++i) {
      const double angle = (i / (kKeyDim / 4)) * std::pow(50.0, -4.0 * (i % (kKeyDim / 4)) / kKeyDim);
      angles.push_back(static_cast<float>(std::cos(angle)));
      angles.push_back(static_cast<float>(std::sin(angle)));
    }
    rope.t[0] = host_.input(TENON_F32, {kCells, kKeyDim / 2}, angles);
    const tenon_fop* op = &rope;
    auto chain = sdk::abi_struct<tenon_chain>();
    chain.n = v_.rotated ? 0 : 1;
    chain.op = &op;
    a.pro = &chain;
    auto call = sdk::abi_struct<tenon_attn_call>();
    call.q = host_.input(TENON_F32, {kRows + 1, kHeads * kGroup * kKeyDim},
                         randoms((kRows + 1) * kHeads * kGroup * kKeyDim));
    call.out = host_.output(TENON_F32, {kRows + 1, kHeads * kGroup * v_.value_dim});
    call.kv = &view_;
    call.pro = &chain;
    auto claim = sdk::abi_struct<tenon_claim>();
    call.claim = &claim;
    const auto& table = attention_.table<tenon_attention>();
    char text[256] = "";
    tenon_reason why{text, sizeof(text)};
    const tenon_bounds b = *host_.recorder()->bounds;
    if (table.claim(attention_.self(), &a, &view_, &b, &claim, &why) != TENON_OK) return {.fault = text};
    if (claim.pro != chain.n) return {.fault = "does not claim ROPE"};
    if (table.record(attention_.self(), &a, &call, host_.recorder(), &why) != TENON_OK) return {.fault = text};
    Answer answer{.fault = host_.run(1)};
    answer.out = host_.f32(call.out);
    answer.out.resize(size_t{kRows} * kHeads * kGroup * v_.value_dim);
    if (v_.weight_rows != 0) answer.weights = host_.f32(view_.weights);
    return answer;
  }

 private:
  static constexpr uint32_t kRows = 8, kTree = 5;
  static constexpr int32_t kParents[kRows] = {-1, 0, 0, 1, 2, -1, 5, 6};
  static constexpr int32_t kLength[2] = {170, 3}, kSlot[2] = {2, 0};

  std::vector<float> randoms(size_t n) {
    std::vector<float> x(n);
    for (float& value : x) value = static_cast<float>(random_() % 2001) / 1000.0f - 1;
    return x;
  }
  uint32_t lines() const { return (v_.flags & TENON_KV_HEADS_APART) != 0 ? kHeads : 1; }  // lists of each kind

  void fill_state() {
    for (uint32_t row = 0; row <= kRows; ++row) {
      const uint32_t s = row < kTree ? 0 : 1, first = s == 0 ? 0 : kTree;
      host_.step_i32(TENON_STEP_SLOT)[row] = row < kRows ? kSlot[s] : -1;
      if (row == kRows) continue;
      host_.step_i32(TENON_STEP_PARENT)[row] = kParents[row];
      host_.step_i32(TENON_STEP_PLACE)[row] = kLength[s] + static_cast<int32_t>(row - first);
      host_.step_i32(TENON_STEP_POS)[row] =
          v_.trees == 0       ? kLength[s] + static_cast<int32_t>(row - first)
          : kParents[row] < 0 ? kLength[s]
                              : host_.step_i32(TENON_STEP_POS)[static_cast<uint32_t>(kParents[row])] + 1;
      if (v_.trees == 0 && row != first) host_.step_i32(TENON_STEP_PARENT)[row] = static_cast<int32_t>(row) - 1;
    }
    for (uint32_t s = 0; s < 2; ++s) {
      host_.step_i32(TENON_STEP_KV_LEN)[static_cast<uint32_t>(kSlot[s])] = kLength[s];
      host_.step_i32(TENON_STEP_SEQ_SLOT)[s] = kSlot[s];
      host_.step_i32(TENON_STEP_SEQ_ROW)[s] = s == 0 ? 0 : kTree;
    }
    host_.step_i32(TENON_STEP_SEQ_ROW)[2] = kRows;
    host_.set_live(kRows, 2);
  }

  void make_view() {
    const bool scaled = sdk::is_scaled_codec(v_.codec);
    format_ = sdk::kv_format(v_.codec, scaled ? TENON_F16 : TENON_FORMAT_NONE, v_.rotated);
    view_.format = &format_;
    view_.flags = v_.flags;
    view_.heads = kHeads;
    view_.k_dim = kKeyDim;
    view_.v_dim = v_.value_dim;
    view_.page_cells = kPageCells;
    view_.columns = kColumns;
    view_.pos_rule = v_.rule;
    view_.sinks = v_.sinks;
    view_.ring = v_.ring;
    view_.window = v_.window;
    view_.weight_rows = v_.weight_rows;
    view_.group = 1;
    std::vector<int32_t> pages(kPages);
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), random_);
    pages.resize(size_t{kSlots} * lines() * kColumns);
    view_.pages = host_.input(TENON_I32, {static_cast<int64_t>(pages.size())}, pages);
    fill_planes(view_);
    if (v_.rule == TENON_POS_TABLE) {
      make_table(pages);
    } else {
      place_by_rule();
    }
    if (v_.weight_rows != 0) view_.weights = host_.output(TENON_F32, {kSlots, kHeads, kCells});
    if (v_.recent != 0) make_tail();
  }
  // Makes other random values in f16, in pages that columns name in turn.
  void make_tail() {
    static constexpr tenon_kv_format kFormat = sdk::kv_format(TENON_F16);
    const uint32_t turn = std::min((v_.recent + kTree + kPageCells - 1) / kPageCells, kColumns);
    std::vector<int32_t> pages;
    for (uint32_t i = 0; i < kSlots * kColumns; ++i) {
      pages.push_back(static_cast<int32_t>(i / kColumns * turn + i % kColumns % turn));
    }
    tail_ = view_;
    tail_.format = &kFormat;
    tail_.k_scale = tail_.v_scale = 0;
    tail_.pages = host_.input(TENON_I32, {kSlots * kColumns}, pages);
    fill_planes(tail_);
    view_.flags |= TENON_KV_RECENT;
    view_.recent = v_.recent;
    view_.recent_view = &tail_;
  }
  void fill_planes(tenon_kv_view& view) {
    const tenon_format codec = view.format->k.codec;
    view.k = plane(codec, kKeyDim, view.k_stride, view.ks_stride, view.k_scale);
    view.v = plane(codec, v_.value_dim, view.v_stride, view.vs_stride, view.v_scale);
  }
  tenon_tid plane(tenon_format codec, uint32_t dim, int64_t (&stride)[3], int64_t (&scale_stride)[3],
                  tenon_tid& scales) {
    const tenon_tensor t = sdk::tensor(codec, {kPages, kHeads, kPageCells, sdk::kv_row_stored(codec, dim)});
    stride[0] = t.stride[0];
    stride[1] = t.stride[2];
    stride[2] = t.stride[1];
    const uint32_t rows = kPages * kHeads * kPageCells;
    const std::vector<float> values = randoms(size_t{rows} * dim);
    std::vector<std::byte> bytes(tensor_extent(t)), scale_bytes(size_t{rows} * 2);
    for (uint32_t r = 0; r < rows; ++r) {
      const float* row = values.data() + size_t{r} * dim;
      float scale = 1;
      if (sdk::is_scaled_codec(codec)) {
        scale = sdk::kv_scale(codec, TENON_F16, sdk::cpu::most_of_row(row, dim));
        sdk::store_kv_scale(TENON_F16, scale, scale_bytes.data() + size_t{r} * 2);
      }
      sdk::cpu::store_row(codec, row, dim, bytes.data() + r * sdk::kv_row_bytes(codec, dim), scale);
    }
    if (sdk::is_scaled_codec(codec)) {
      const tenon_tensor s = sdk::tensor(TENON_F16, {kPages, kHeads, kPageCells});
      scale_stride[0] = s.stride[0];
      scale_stride[1] = s.stride[2];
      scale_stride[2] = s.stride[1];
      scales = host_.strided_input(s, scale_bytes.data());
    }
    return host_.strided_input(t, bytes.data());
  }
  void place_by_rule() {
    const sdk::KvLayout layout = sdk::kv_layout(view_);
    std::vector<int32_t> place;
    for (uint32_t row = 0; row <= kRows; ++row) {
      for (uint32_t h = 0; h < lines(); ++h) {
        const auto order = static_cast<uint32_t>(host_.step_i32(TENON_STEP_PLACE)[row]);
        place.push_back(static_cast<int32_t>(layout.cell_of(order)));
      }
    }
    view_.place = host_.input(TENON_I32, {static_cast<int64_t>(place.size())}, place);
  }
  // Each line holds some of the positions, in any cells, with gaps; the step's rows are placed in free ones.
  void make_table(const std::vector<int32_t>& pages) {
    std::vector<int32_t> place(size_t{kRows + 1} * lines()), used(size_t{kSlots} * lines());
    std::vector<int32_t> table(size_t{kPages} * lines() * kPageCells, -1);
    for (uint32_t s = 0; s < 2; ++s) {
      for (uint32_t h = 0; h < lines(); ++h) {
        const size_t line = static_cast<uint32_t>(kSlot[s]) * lines() + h;
        std::vector<int32_t> cells(kCells - 10);
        std::iota(cells.begin(), cells.end(), 0);
        std::shuffle(cells.begin(), cells.end(), random_);
        used[line] = static_cast<int32_t>(cells.size());
        for (uint32_t row = s == 0 ? 0 : kTree; row < (s == 0 ? kTree : kRows); ++row) {
          place[row * lines() + h] = cells.back();
          cells.pop_back();
        }
        for (int32_t p = 0; p < kLength[s]; ++p) {
          if (p % 5 == static_cast<int32_t>(h)) continue;
          const auto cell = static_cast<uint32_t>(cells.back());
          cells.pop_back();
          const auto page = static_cast<size_t>(pages[line * kColumns + cell / kPageCells]);
          table[(page * lines() + (lines() > 1 ? h : 0)) * kPageCells + cell % kPageCells] = p;
        }
      }
    }
    view_.place = host_.input(TENON_I32, {static_cast<int64_t>(place.size())}, place);
    view_.used = host_.input(TENON_I32, {static_cast<int64_t>(used.size())}, used);
    view_.pos = host_.input(TENON_I32, {static_cast<int64_t>(table.size())}, table);
  }

  const View& v_;
  const conformance::Component& attention_;
  OpRunner host_;
  std::mt19937 random_{7};
  tenon_kv_format format_{};
  tenon_kv_view view_ = sdk::abi_struct<tenon_kv_view>(), tail_ = view_;
};

class CudaViews : public testing::TestWithParam<View> {};

TEST_P(CudaViews, AreReadAsOnTheCpu) {
  if (const std::string why = cuda_missing(); !why.empty()) GTEST_SKIP() << why;
  const conformance::Component cpu(cuda_plugins().load("attention", "flash", "cpu"), conformance::Device::cpu());
  const Answer want = Step(GetParam(), cpu).run();
  ASSERT_EQ(want.fault, "");
  for (const char* name : {"reference", "flash"}) {
    const CudaComponent gpu("attention", name);
    const Answer got = Step(GetParam(), gpu).run();
    ASSERT_EQ(got.fault, "") << name;
    // Flash multiplies what chains see in halves.
    const tenon_format codec = GetParam().codec;
    const bool halves = codec != TENON_F32 && GetParam().trees == 0 && std::string(name) == "flash";
    const double within = !halves ? 1e-5 : codec == TENON_BF16 ? 2e-2 : 3e-3;
    ASSERT_EQ(got.out.size(), want.out.size());
    for (size_t i = 0; i < want.out.size(); ++i) {
      ASSERT_NEAR(got.out[i], want.out[i], within) << name << ", element " << i;
    }
    ASSERT_EQ(got.weights.size(), want.weights.size());
    for (size_t i = 0; i < want.weights.size(); ++i) {
      if (i / (kCells * kHeads) == 1) continue;  // this slot has no rows
      ASSERT_NEAR(got.weights[i], want.weights[i], within) << name << ", weight " << i;
    }
  }
}

constexpr uint32_t kApart = TENON_KV_HEADS_APART, kRenumbered = TENON_KV_RENUMBERED;
const View kViews[] = {
    {.name = "tree"},
    {.name = "tree_in_a_window", .layer_window = 3},
    {.name = "chain_of_int8", .codec = TENON_I8, .trees = 0},
    {.name = "chain_of_fp8", .codec = TENON_F8E4M3, .trees = 0},
    {.name = "chain_of_int4", .codec = TENON_U8, .trees = 0},
    {.name = "chain_of_rotated_int4", .codec = TENON_U8, .flags = sdk::kKvHadamard, .trees = 0},
    {.name = "tree_of_int4", .codec = TENON_U8, .softcap = 2},
    {.name = "tree_of_rotated_int4", .codec = TENON_U8, .flags = sdk::kKvHadamard},
    {.name = "tree_of_fp8", .codec = TENON_F8E4M3, .softcap = 2},
    {.name = "tree_of_int8", .codec = TENON_I8, .softcap = 2},
    {.name = "tail_of_a_chain_of_int8", .codec = TENON_I8, .trees = 0, .recent = 9},
    {.name = "tail_of_a_chain_of_int4", .codec = TENON_U8, .trees = 0, .recent = 20},
    {.name = "tail_of_a_chain_of_rotated_int4",
     .codec = TENON_U8,
     .flags = sdk::kKvHadamard,
     .trees = 0,
     .softcap = 2,
     .recent = 1},
    {.name = "tail_of_a_chain_in_a_window", .codec = TENON_U8, .layer_window = 30, .trees = 0, .recent = 20},
    {.name = "tail_longer_than_a_window", .codec = TENON_F8E4M3, .layer_window = 12, .trees = 0, .recent = 20},
    {.name = "tail_of_everything", .codec = TENON_U8, .trees = 0, .recent = kCells},
    {.name = "tail_of_a_tree_of_int4", .codec = TENON_U8, .recent = 3},
    {.name = "policys_window", .codec = TENON_F16, .sinks = 4, .window = 20, .trees = 0},
    {.name = "ring", .rule = TENON_POS_RING, .sinks = 4, .ring = 28, .window = 20},
    {.name = "ring_of_chains",
     .codec = TENON_BF16,
     .rule = TENON_POS_RING,
     .sinks = 4,
     .ring = 28,
     .window = 20,
     .trees = 0},
    {.name = "renumbered_ring",
     .rule = TENON_POS_RING,
     .sinks = 4,
     .ring = 28,
     .window = 20,
     .flags = kRenumbered,
     .rotated = false},
    {.name = "renumbered_ring_of_chains",
     .codec = TENON_F16,
     .rule = TENON_POS_RING,
     .sinks = 4,
     .ring = 28,
     .window = 20,
     .flags = kRenumbered,
     .rotated = false,
     .trees = 0},
    {.name = "renumbered_ring_of_int8_in_a_window",
     .codec = TENON_I8,
     .rule = TENON_POS_RING,
     .sinks = 4,
     .ring = 28,
     .window = 20,
     .flags = kRenumbered,
     .rotated = false,
     .layer_window = 9,
     .trees = 0,
     .pairing = 1},
    {.name = "ring_in_a_long_step",
     .codec = TENON_F16,
     .rule = TENON_POS_RING,
     .sinks = 4,
     .ring = 48,
     .window = 20,
     .trees = 0,
     .softcap = 2,
     .bound = 24},
    {.name = "ring_under_a_layers_window_in_a_long_step",
     .codec = TENON_F16,
     .rule = TENON_POS_RING,
     .sinks = 4,
     .ring = 48,
     .window = 20,
     .layer_window = 7,
     .trees = 0,
     .bound = 24},
    // So many rows fill pages of a copy that are counted by rows, not by sequences.
    {.name = "ring_in_a_much_longer_step",
     .codec = TENON_F16,
     .rule = TENON_POS_RING,
     .sinks = 4,
     .ring = 400,
     .window = 20,
     .trees = 0,
     .bound = 370},
    {.name = "renumbered_ring_in_a_long_step",
     .codec = TENON_F16,
     .rule = TENON_POS_RING,
     .sinks = 4,
     .ring = 48,
     .window = 20,
     .flags = kRenumbered,
     .rotated = false,
     .trees = 0,
     .bound = 24},
    {.name = "table_of_chains", .codec = TENON_F16, .rule = TENON_POS_TABLE, .weight_rows = 2, .trees = 0},
    {.name = "table_of_heads_of_chains",
     .codec = TENON_I8,
     .rule = TENON_POS_TABLE,
     .flags = kApart,
     .weight_rows = 5,
     .trees = 0,
     .softcap = 2},
    {.name = "table_of_heads_in_a_long_step",
     .codec = TENON_F16,
     .rule = TENON_POS_TABLE,
     .flags = kApart,
     .weight_rows = 3,
     .trees = 0,
     .bound = 24},
    // Prefill through wgmma is for heads of 64 and 128 dimensions on both sides.
    {.name = "ring_of_whole_heads_in_a_long_step",
     .codec = TENON_BF16,
     .rule = TENON_POS_RING,
     .sinks = 4,
     .ring = 160,
     .window = 130,
     .flags = kRenumbered,
     .rotated = false,
     .trees = 0,
     .value_dim = 64,
     .bound = 24},
    {.name = "table_of_whole_heads_in_a_long_step",
     .codec = TENON_F16,
     .rule = TENON_POS_TABLE,
     .flags = kApart,
     .weight_rows = 5,
     .trees = 0,
     .value_dim = 64,
     .bound = 24},
    {.name = "keys_before_rope", .codec = TENON_F16, .rotated = false, .pairing = 1},
    {.name = "apart", .flags = kApart, .weight_rows = 2},
    {.name = "table", .rule = TENON_POS_TABLE, .weight_rows = 1},
    {.name = "table_of_heads", .codec = TENON_I8, .rule = TENON_POS_TABLE, .flags = kApart, .weight_rows = 3},
    {.name = "table_before_rope",
     .rule = TENON_POS_TABLE,
     .sinks = 2,
     .window = 30,
     .flags = kApart | kRenumbered,
     .rotated = false,
     .weight_rows = 5,
     .trees = 0},
};
INSTANTIATE_TEST_SUITE_P(Some, CudaViews, testing::ValuesIn(kViews), [](const auto& view) { return view.param.name; });

}  // namespace
}  // namespace tenon::test
