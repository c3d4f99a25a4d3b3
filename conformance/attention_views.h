// This makes a step of attention over views that a plain cache does not have: rings with sinks, tables of positions,
// scaled cells, heads apart, keys before rope, softmax weights; and it computes the answer in float64, from the rules
// at the top of tenon/abi/kv_cache.h alone.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "conformance/device.h"
#include "conformance/op_runner.h"
#include "tenon/abi/attention.h"

namespace tenon::conformance {

struct ViewCase {
  std::string name;
  tenon_format codec = TENON_F32;
  uint32_t rule = TENON_POS_LINEAR, sinks = 0, ring = 0, window = 0, flags = 0;
  bool rotated = true;
  uint32_t weight_rows = 0, layer_window = 0;
  bool tree = false;
  float softcap = 0;
  // Spans are chosen for the rows of a sequence that has no more of them; 0: there are no spans.
  uint32_t chosen_rows = 0;
  uint32_t recent = 0;     // a tail in f16 has so many tokens
  uint32_t key_group = 0;  // the keys of so many cells share zeros and steps
};
std::vector<ViewCase> view_cases();

// It has two sequences in three slots. Cells that no row sees, and pages of the slot that is nobody's, are NaN.
class ViewHost {
 public:
  ViewHost(const ViewCase& c, const Component& attention, uint64_t seed);

  struct Answer {
    std::string refusal = {}, fault = {};  // a refusal is an answer; a fault is none
    std::vector<float> out = {}, weights = {};
  };
  struct Expected {
    std::vector<double> out, weights;  // (rows, q_heads, v_dim); (slots, heads, cells), NaN for slots without rows
  };
  // Each of these is called once, in this order.
  Answer run();
  Expected expected() const;

  static constexpr uint32_t kHeads = 2, kGroup = 2, kKeyDim = 16, kValueDim = 8, kSlots = 3;
  static constexpr uint32_t kPageCells = 8, kColumns = 12, kCells = kPageCells * kColumns;

 private:
  static constexpr uint32_t kRows = 8, kSeqs = 2, kFirst[kSeqs + 1] = {0, 5, kRows};
  static constexpr int32_t kParent[kRows] = {-1, 0, 0, 1, 2, -1, 5, 6}, kLength[kSeqs] = {61, 3}, kSlot[kSeqs] = {2, 0};
  static constexpr uint32_t kRotated = 8, kPages = kSlots * kHeads * kColumns;
  static constexpr uint32_t kSpanCells = 16, kMostSpans = 3;

  // This is a cell that a row sees, and the position of what it holds.
  struct Seen {
    uint32_t cell;
    int32_t position;
  };
  // Returns the spans that are chosen for a row and KV head; -1 stands for all.
  std::vector<int32_t> spans_for(uint32_t row, uint32_t head) const;
  uint32_t lines() const { return (case_.flags & TENON_KV_HEADS_APART) != 0 ? kHeads : 1; }
  static uint32_t sequence_of(uint32_t row) { return row < kFirst[1] ? 0 : 1; }
  uint32_t place(uint32_t row, uint32_t head) const { return place_[row * lines() + (lines() > 1 ? head : 0)]; }
  // Returns the position of each cell of a sequence and head, -1 for cells that are not old.
  std::vector<int32_t> old_cells(uint32_t sequence, uint32_t head) const;
  std::vector<Seen> seen(uint32_t row, uint32_t head) const;
  std::vector<double> scores(uint32_t row, uint32_t q_head, const std::vector<Seen>& cells) const;
  void turn(std::vector<double>& x, int32_t index) const;

  void fill_state();
  void place_rows();
  void place_in_table(uint32_t sequence, uint32_t line);
  void make_view();
  // These are keys or values of a view, and what the codec gives back of them: (sequences, heads, cells, dim).
  struct Plane {
    bool values;
    const tenon_kv_view& view;
    const std::vector<int32_t>& pages;
    std::vector<float>& kept;
  };
  struct PlaneTensors {
    tenon_tid plane, scales;
    int64_t stride[3], scale_stride[3];
  };
  PlaneTensors make_plane(const Plane& p);
  void fill_planes(tenon_kv_view& view, const std::vector<int32_t>& pages, std::vector<float>& keys,
                   std::vector<float>& values);
  void make_tail();
  // Attention's claim gets the view without tensors and strides.
  static tenon_kv_view prototype_of(tenon_kv_view view);
  // Returns a key or a value that a row reads.
  const float* read_by(uint32_t row, uint32_t head, const Seen& at, bool value) const;
  std::vector<float> randoms(size_t n);

  ViewCase case_;
  const Component& attention_;
  OpRunner host_;
  std::mt19937_64 random_;
  std::vector<uint32_t> place_;        // (rows + 1 of padding, lines)
  std::vector<int32_t> table_, used_;  // (slots, lines, cells), (slots, lines)
  std::vector<int32_t> pages_;         // (slots, lines, columns)
  std::vector<float> q_, angles_;      // (rows, q_heads, k_dim); (cells, kRotated)
  std::vector<float> keys_, values_;   // (sequences, heads, cells, dim) as the codec gives them back
  std::vector<float> tail_keys_, tail_values_;
  std::vector<int32_t> tail_pages_;  // (slots, columns)
  tenon_kv_format format_{};
  tenon_kv_view view_, tail_;
};

}  // namespace tenon::conformance
