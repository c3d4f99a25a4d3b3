// This is a model some of whose tensors are cut: a tensor of all experts (experts, rows, ...) is seen as a tensor for
// each of them, as models call them.
//
// An example with the parts "gate" and "up": gate_up_proj_scales (4, 6, 2) u8 is cut into eight tensors (3, 2), and row
// i of gate_up_proj.2.up.scales is row 2 i + 1 of the third expert.
#pragma once

#include <string>
#include <vector>

#include "table_weights.h"

namespace tenon::weights {

// A tensor of all experts is cut so.
struct Cut {
  std::string name;                     // "gate_up_proj_scales"
  std::string stem, suffix;             // "gate_up_proj" and "scales" become "gate_up_proj.2.up.scales"
  std::vector<std::string> parts = {};  // the rows of these come in turns; none: the rows are those of one matrix
  bool transposed = false;              // the tensor is (experts, columns, rows)
};

class CutWeights final : public TableWeights {
 public:
  // The source must outlive it. Throws Error(kModel) for a tensor that cannot be cut
  // so. Tensors that are not there are not cut.
  CutWeights(const Weights& source, const std::vector<Cut>& cuts);

  const std::byte* mapped(const WeightTensor& tensor) const override;
  void read(const WeightTensor& tensor, uint64_t offset, std::span<std::byte> out) const override;
  std::optional<tenon_generated> generated(const WeightTensor& tensor, uint64_t offset, uint64_t bytes) const override;
  void prefetch(const WeightTensor& tensor) const override;
  void release(const WeightTensor& tensor, uint64_t offset, uint64_t bytes) const override;

 private:
  // Row r of a tensor begins at byte first + r * row_step of its source. Its elements stand side by side; or,
  // transposed, they are of element_bytes, and element c begins c * column_step bytes after it.
  struct Piece {
    const WeightTensor* source = nullptr;
    uint64_t first = 0, row_bytes = 0, row_step = 0;
    uint64_t element_bytes = 0, column_step = 0;                                // 0: not transposed
    bool whole() const { return element_bytes == 0 && row_step == row_bytes; }  // its bytes stand side by side
  };
  struct Table {
    Contents contents;
    std::vector<Piece> pieces;  // there is one for each tensor, by its number
  };

  CutWeights(const Weights& source, Table table);
  static Table table_of(const Weights& source, const std::vector<Cut>& cuts);
  static void add_parts(const Weights& source, const WeightTensor& tensor, const Cut& cut, Table& table);
  const Piece& piece_of(const WeightTensor& tensor) const { return pieces_.at(number_of(tensor.name)); }
  void read_rows(const Piece& piece, uint64_t first, std::span<std::byte> out) const;

  const Weights& source_;
  std::vector<Piece> pieces_;
};

}  // namespace tenon::weights
