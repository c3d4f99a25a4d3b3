// One layer of attention over a hand-made paged cache, and what it should answer in float64.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "support/component.h"
#include "support/op_runner.h"
#include "tenon/abi/attention.h"

namespace tenon::test {

struct AttentionCase {
  struct Sequence {
    uint32_t before, rows;              // tokens in the cache before the step; rows of the step
    std::vector<int32_t> parents = {};  // of the rows, counted from the sequence's first; empty: a chain
  };
  std::string name;
  uint32_t q_heads = 1, kv_heads = 1, k_dim = 8, v_dim = 8;
  std::vector<Sequence> sequences;
  uint32_t window = 0;
  float softcap = 0;
  bool sink = false, lse = false, tree = false;
  tenon_format codec = TENON_F32;
  uint32_t page_tokens = 16;
};

// Holds the cache and the queries of a case. Everything that no row may see is NaN: the rest of a page, other pages.
class AttentionHost {
 public:
  AttentionHost(const AttentionCase& c, uint64_t seed);

  struct Answer {
    std::string fault;       // of the run, or "" and then
    std::vector<float> out;  // (rows, q_heads, v_dim)
    std::vector<float> lse;  // (rows, q_heads)
  };
  uint32_t rows() const { return static_cast<uint32_t>(rows_.size()); }
  // Rows [begin, end) as one step, `padding` rows behind them, in a program for kv_len tokens at most.
  Answer run(const Component& attention, uint32_t begin, uint32_t end, uint32_t padding, uint32_t kv_len,
             uint64_t seed) const;
  Answer run_all(const Component& attention, uint64_t seed) const {
    return run(attention, 0, rows(), 2, longest_, seed);
  }
  // TENON_OK, or REFUSED and the reason.
  tenon_status claim(const Component& attention, std::string* why) const;

  // In float64, over the values as the cache's codec has them.
  struct Expected {
    std::vector<double> out, lse;
  };
  Expected expected() const;

  uint32_t longest() const { return longest_; }
  tenon_attn layer() const;

 private:
  struct Row {
    uint32_t sequence;
    int32_t position, parent;  // row of the whole step, or -1
  };
  // The cache of a sequence: f32 (token, head, dim), rounded to the codec.
  struct Cached {
    std::vector<float> k, v;
  };
  struct Placed;

  std::vector<bool> visible(uint32_t row) const;
  Placed place(OpRunner& host) const;

  AttentionCase case_;
  uint32_t longest_ = 0, columns_ = 0;
  std::vector<Row> rows_;
  std::vector<Cached> cached_;
  std::vector<std::vector<int32_t>> pages_;  // by sequence
  uint32_t n_pages_ = 0;
  std::vector<float> q_, sink_;  // q: (rows, q_heads, k_dim)
  bool token_major_ = false;
};

}  // namespace tenon::test
