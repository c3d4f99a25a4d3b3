// A site of random matrices for tests of quantization schemes: claims, binds, loads and records it, and knows in
// float64 what it ought to answer.
#pragma once

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "support/component.h"
#include "support/op_runner.h"

namespace tenon::test {

// A scheme with its settings and instruction set.
struct Scheme {
  std::string name, label;
  std::string dtype{};  // of none, "" elsewhere
  int64_t group = 0;    // of int4wo
  bool int8 = false;    // activations, of gguf
  uint64_t isa = 0;     // TENON_ISA_*

  std::unique_ptr<Component> open() const;
};
void PrintTo(const Scheme& s, std::ostream* out);

struct SiteCase {
  std::vector<tenon_format> source{TENON_F32};  // per matrix
  std::vector<int64_t> rows{8};
  int64_t k = 32;
  float scale = 0.1F;  // of the weights
  uint32_t seed = 1;
};

// One step of a site: x and the operands of whatever is fused are made from the seed.
struct StepCase {
  uint32_t rows = 1, live = 1;
  uint32_t pitch = 0;     // elements between rows of x and y beyond their width
  bool own_live = false;  // the live count comes as row_live
  bool norm = false;      // RMSNORM before
  std::vector<tenon_id> epilogue{};
  uint32_t seed = 1;
  bool unit = false;  // row r of x is the unit vector r
};

class QuantizedSite {
 public:
  // Throws std::runtime_error with the scheme's reason. rows_a_load: how many rows load() gets at a time.
  QuantizedSite(const Scheme& scheme, const SiteCase& site, uint32_t rows_a_load = 3);
  QuantizedSite(const QuantizedSite&) = delete;
  QuantizedSite& operator=(const QuantizedSite&) = delete;

  // y (live, columns), with everything of the step fused if `fused`, else the bare product. Fails the test if the host
  // saw an op misbehave.
  std::vector<float> run(const StepCase& step, bool fused, uint64_t seed = 1) const;
  // What the step ought to give, and how much rounding may be: the sum of |w x|, through the epilogue.
  struct Exact {
    std::vector<double> y, magnitude;
  };
  Exact exact(const StepCase& step, bool fused) const;
  std::vector<float> embed(const std::vector<int32_t>& index) const;

  // Weight (row, column) of matrix m as the scheme is to hold it; as the file has it.
  double weight(size_t m, int64_t row, int64_t column) const {
    return held_[m][static_cast<size_t>(row * k_ + column)];
  }
  double source(size_t m, int64_t row, int64_t column) const {
    return file_[m][static_cast<size_t>(row * k_ + column)];
  }
  const tenon_footprint& footprint() const { return footprint_; }
  int64_t columns() const;
  // Whether the scheme takes on everything that stands around the step's product.
  bool claims(const StepCase& step) const;
  // For a scheme whose definition is not known here: from now on it is to hold what its products with unit vectors
  // show.
  void learn();
  bool has_rows() const { return table_->record_rows != nullptr; }
  uint32_t row_invariant_max() const { return table_->row_invariant_max; }

 private:
  struct Chains;
  void load(uint32_t rows_a_load);
  std::vector<float> input(const StepCase& step) const;
  tenon_claim claim(const tenon_bounds& bounds, Chains& chains) const;
  std::string emit(OpRunner& host, const StepCase& step, bool fused, tenon_tid x, tenon_tid y) const;

  std::unique_ptr<Component> component_;
  const tenon_quantization* table_;
  SiteCase case_;
  int64_t k_;
  std::vector<std::vector<uint8_t>> bytes_;  // per matrix, as in a file
  std::vector<std::vector<float>> file_, held_;
  std::shared_ptr<void> site_;
  tenon_footprint footprint_{};
  std::vector<std::vector<uint8_t>> stores_;
};

// A site as the interface describes it. The vectors stay alive with it.
struct LinearDescription {
  explicit LinearDescription(const SiteCase& c);
  tenon_linear linear;
  SiteCase site;
};

}  // namespace tenon::test
