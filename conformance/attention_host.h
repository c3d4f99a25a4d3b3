// This has one layer of attention over a hand-made paged cache, on any device, and what it should answer in float64.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "conformance/device.h"
#include "conformance/op_runner.h"
#include "tenon/abi/attention.h"

namespace tenon::conformance {

struct AttentionCase {
  struct Sequence {
    uint32_t before, rows;  // The cache holds `before` tokens, and the step adds `rows`.
    // The parent of each row counts from the sequence's first row. No parents at all mean a chain.
    std::vector<int32_t> parents = {};
  };
  std::string name = {};
  uint32_t q_heads = 1, kv_heads = 1, k_dim = 8, v_dim = 8;
  std::vector<Sequence> sequences = {};
  tenon_format codec = TENON_F32;
  uint32_t window = 0;
  float softcap = 0;
  bool sinks = false;         // learned sinks join the softmax
  bool tree = false;          // the program allows trees
  uint32_t page_tokens = 16;  // 0: one page for everything, without gaps between cells
  // Attention does the append, if it is to, and before it a norm of heads and rope of so many dimensions.
  bool append = false, norm = false;
  int32_t rotated = 0, pairing = 0;
  bool hadamard = false;  // the cache stores heads rotated (tenon/sdk/hadamard.h)
};
std::string to_string(const AttentionCase& c);

// Holds the cache and the queries of a case. Everything that no row may see is NaN: the rest of a page, other pages.
class AttentionHost {
 public:
  AttentionHost(const AttentionCase& c, uint64_t seed);

  struct Answer {
    std::string fault = {};           // The run ended with this fault. The other members are valid if it is "".
    bool refused = false;             // true: the fault is that the attention has refused the case
    std::vector<float> out = {};      // (rows, q_heads, v_dim)
    std::vector<uint8_t> cache = {};  // This holds every byte of keys and values, and of their scales.
  };
  struct How {
    uint32_t begin = 0, end = UINT32_MAX;  // The step has the rows [begin, end) of the case.
    uint32_t padding = 2;                  // The program has so many rows after them.
    uint32_t kv_len = 0;                   // it is the program's bound; 0 stands for the longest sequence
    uint32_t rows_per_seq = 0;             // it is the program's bound; 0 stands for the step's
    uint32_t repeats = 1;                  // The program has the layer so often, each time over its own cache.
    uint64_t seed = 1;
    tenon_format out_format = TENON_F32;  // the attention leaves its result in it (tenon/sdk/linked_rows.h)
    std::vector<int32_t> wanted = {};     // only these rows of the step are read, in ascending order; empty: all are
  };
  uint32_t rows() const { return static_cast<uint32_t>(rows_.size()); }
  uint32_t longest() const { return longest_; }
  Answer run(const Component& attention, const How& how) const;
  Answer run(const Component& attention) const { return run(attention, How{}); }
  // Returns TENON_OK, or REFUSED and the reason. An attention that leaves sinks unclaimed has refused them.
  tenon_status claim(const Component& attention, std::string* why) const;

  // Returns (rows, q_heads, v_dim) in float64, over the values as the cache's codec has them. Queries are rounded to
  // the format `queries`.
  std::vector<double> expected(tenon_format queries = TENON_F32) const;

  // Returns the view of the case's cache in another format, which outlives it.
  tenon_kv_view prototype(const tenon_kv_format& format) const;
  tenon_attn layer() const;

 private:
  struct Row {
    uint32_t sequence, place;
    int32_t position, parent;  // parent: row of the whole step, or -1
  };
  // A sequence has these in f32 (cell, head, dim): what the step's rows bring, and what the cache holds in the end.
  struct Cached {
    std::vector<float> k, v, stored_k, stored_v;
  };
  struct Placed;
  struct Prologue;

  // These are the phases of making a case.
  void make_rows();
  void make_prologue(std::mt19937_64& random);
  void make_cached(std::mt19937_64& random);
  void make_pages(std::mt19937_64& random);

  // A run has left its result in this format: of so many rows, of which the first ones are live.
  struct Left {
    tenon_format format;
    uint32_t live, rows;
  };
  void read_answer(OpRunner& host, const tenon_attn_call& call, const Left& left, Answer& answer) const;

  void prepare(float* head, int32_t position, const std::vector<float>& weight) const;
  std::vector<bool> visible(uint32_t row) const;  // by cell
  Placed place(OpRunner& host, const How& how) const;
  tenon_tid queries(OpRunner& host, const How& how) const;
  void write_step(OpRunner& host, const How& how) const;

  AttentionCase case_;
  uint32_t longest_ = 0, columns_ = 0, n_pages_ = 0;
  std::vector<Row> rows_;
  std::vector<Cached> cached_;
  std::vector<int32_t> slot_;   // by sequence; one slot more is nobody's
  std::vector<int32_t> pages_;  // (slots, columns)
  std::vector<float> q_;        // (rows, q_heads, k_dim)
  std::vector<float> q_weight_, k_weight_, rope_;
  std::vector<float> sinks_;  // (q_heads)
  bool cell_major_ = false;
};

}  // namespace tenon::conformance
