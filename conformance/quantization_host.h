// This is a site of random matrices for tests of quantization schemes: it claims, binds, loads and records, and knows
// in float64 what it ought to answer.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "conformance/device.h"
#include "conformance/op_runner.h"

namespace tenon::conformance {

// A file has these of one matrix, which stand for the weights.
struct FileMatrix {
  struct Tensor {
    tenon_stored stored;  // its name is a literal
    std::vector<uint8_t> bytes;
  };
  std::vector<Tensor> tensors;
  std::vector<float> weights;
  float x_scale = 0;      // x is rounded to so many times a number in e4m3; 0: it is not
  int64_t x_group = 0;    // x is rounded to e4m3 by a scale of each so many columns of a row; 0: it is not
  bool x_powers = false;  // scales of groups are powers of two
  double x_steps = 0;     // x is rounded to whole numbers of steps, of which a row's largest has so many; 0: it is not
  double x_outlier = INFINITY;  // x of this magnitude and above is rounded to fp16 instead

  std::vector<double> multiplied(const std::vector<double>& row) const;  // returns a row of x as it is multiplied
};

// A matrix of a file has n rows of k weights.
struct FileShape {
  int64_t n, k;
  uint32_t set = 0;  // matrices of one set share x: an expert's, which has this number
};

struct SiteCase {
  std::vector<tenon_format> source{TENON_F32};  // per matrix; of a routed site those of one expert
  std::vector<int64_t> rows{8};
  int64_t k = 32;
  float scale = 0.1F;  // the weights are so large
  uint32_t seed = 1;
  uint32_t experts = 0;  // 0: the site is not routed
  // Makes a matrix that is stored in another way than plain; `source` then only counts the matrices.
  std::function<FileMatrix(const FileShape& shape, std::mt19937& random)> stored{};
  std::string description{};  // what the file says of how matrices are stored
  bool lookup = true;         // the host looks up rows, unless the site is routed

  FileMatrix matrix(size_t m, std::mt19937& random, uint32_t set = 0) const;
  size_t sets() const { return std::max(experts, 1U); }
  // Returns all matrices as load() numbers them.
  std::vector<FileMatrix> matrices() const;
};

// This is one step of a site: x and the operands of whatever is fused are made from the seed.
struct StepCase {
  uint32_t rows = 1, live = 1;
  uint32_t pitch = 0;     // elements between rows of x and y beyond their width
  bool own_live = false;  // the live count comes as row_live
  bool norm = false;      // an RMSNORM stands before it
  std::vector<tenon_id> epilogue{};
  uint32_t seed = 1;
  bool unit = false;              // row r of x is the unit vector r
  std::vector<int32_t> expert{};  // it is each row's expert, if the site is routed
  std::vector<float> x{};         // (rows, k + pitch); if it is empty, they are random
  bool sequences = false;         // each row is of a sequence of its own
  uint32_t most_out_rows = 0;     // another program of the pipeline has so many
};

class QuantizedSite {
 public:
  // A scheme's definition makes the weights that it holds of a matrix of the file, rows of k.
  using Definition = std::function<std::vector<float>(std::vector<float> file, int64_t k)>;
  // Throws Error with the scheme's reason. load() gets rows_a_load rows at a time. `definition` is nullptr if what the
  // scheme holds is to be learnt. The site is bound with the ops of the step `around` around it, as it has to be before
  // they can be recorded fused.
  QuantizedSite(std::unique_ptr<Component> scheme, const SiteCase& site, uint32_t rows_a_load = 3,
                const Definition& definition = nullptr, const StepCase& around = {});
  QuantizedSite(const QuantizedSite&) = delete;
  QuantizedSite& operator=(const QuantizedSite&) = delete;

  // Returns y (live, columns), with everything of the step fused if `fused`, else the bare product. Throws Error if
  // the host saw an op misbehave.
  std::vector<float> run(const StepCase& step, bool fused, uint64_t seed = 1) const;
  // Returns what the step's ops say that they cost.
  tenon_cost cost(const StepCase& step) const;
  // This is the result that the step ought to give, and how much rounding may be: the sum of |w x|, through the
  // epilogue.
  struct Exact {
    std::vector<double> y, magnitude;
  };
  Exact exact(const StepCase& step, bool fused) const;
  std::vector<float> embed(const std::vector<int32_t>& index) const;

  // These return weight (row, column) of matrix m as the scheme is to hold it, and as the file has it. Matrices are
  // numbered as in load().
  double weight(size_t m, int64_t row, int64_t column) const {
    return held_[m][static_cast<size_t>(row * k_ + column)];
  }
  double source(size_t m, int64_t row, int64_t column) const {
    return file_[m].weights[static_cast<size_t>(row * k_ + column)];
  }
  const tenon_footprint& footprint() const { return footprint_; }
  int64_t columns() const;
  // Says whether the scheme takes on everything that stands around the step's product.
  bool claims(const StepCase& step) const;
  // Learns what a scheme holds whose definition is not known here: from now on it is to hold
  // what its products with unit vectors show.
  void learn();
  bool has_rows() const { return table_->record_rows != nullptr; }
  uint32_t row_invariant_max() const { return table_->row_invariant_max; }

 private:
  struct Chains;
  void load(uint32_t rows_a_load);
  void load_matrix(uint32_t mat, uint32_t pass, uint32_t rows_a_load, void* const* stores, void* scratch);
  std::vector<float> input(const StepCase& step) const;
  tenon_claim claim(const tenon_bounds& bounds, Chains& chains) const;
  std::string emit(OpRunner& host, const StepCase& step, bool fused, tenon_tid x, tenon_tid y) const;

  std::unique_ptr<Component> component_;
  const tenon_quantization* table_;
  SiteCase case_;
  int64_t k_;
  std::vector<FileMatrix> file_;          // per matrix
  std::vector<std::vector<float>> held_;  // the scheme is to hold these weights
  std::shared_ptr<void> site_;
  tenon_footprint footprint_{};
  std::vector<std::unique_ptr<GuardedMemory>> stores_;  // they are in the device's memory
};

// This is a site as the interface describes it. The vectors stay alive with it.
struct LinearDescription {
  explicit LinearDescription(const SiteCase& c);
  LinearDescription(const LinearDescription&) = delete;
  LinearDescription& operator=(const LinearDescription&) = delete;
  tenon_linear linear;
  SiteCase site;

 private:
  std::vector<std::vector<tenon_stored>> tensors_;
  std::vector<tenon_matrix> matrices_;
};

}  // namespace tenon::conformance
