// A thread takes one matrix after the other. Rows go through three buffers: as the file has them, as f32, as the
// tensors that the scheme describes; a tensor that is not by row is filled over all calls and handed on at the end.
#include "matrix_encoding.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "../../model/weights/gguf_encode.h"
#include "../../model/weights/tensor_converter.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/gguf_blocks.h"

namespace tenon {
namespace {

constexpr uint64_t kChunkWeights = uint64_t{1} << 20;   // a scheme gets so many at a time, unless it wants all
constexpr uint64_t kWeightsAtOnce = uint64_t{1} << 28;  // all threads together hold so many, unless one matrix is more
constexpr uint64_t kMostThreads = 16;

uint64_t rows_a_call(const PlannedTensor& p) {
  const auto rows = static_cast<uint64_t>(p.matrix.rows), columns = static_cast<uint64_t>(p.matrix.columns);
  return p.described.whole ? rows : std::clamp<uint64_t>(kChunkWeights / columns, 1, rows);
}

// One matrix goes this way.
class MatrixWay {
 public:
  MatrixWay(const Weights& model, const PlannedTensor& p, const MatrixInput& input)
      : model_(model), p_(p), input_(input), rows_(rows_a_call(p)), columns_(static_cast<uint64_t>(p.matrix.columns)) {
    weights_.resize(rows_ * columns_);
    for (const MatrixDescription::Tensor& t : p.described.tensors) {
      out_.emplace_back(t.by_row ? rows_ * row_bytes(t) : t.bytes());
    }
  }

  void run(const PutEncoded& put) {
    const auto all = static_cast<uint64_t>(p_.matrix.rows);
    for (uint64_t row = 0; row < all; row += rows_) {
      const uint64_t rows = std::min(rows_, all - row);
      read_weights(model_, *p_.source, row, rows, std::span(weights_).first(rows * columns_));
      if (input_.factors != nullptr) multiply(*input_.factors, row, rows);
      encode(row, rows);
      for (size_t t = 0; t < out_.size(); ++t) {
        const MatrixDescription::Tensor& tensor = p_.described.tensors[t];
        if (tensor.by_row) put(p_, t, std::span(out_[t]).first(rows * row_bytes(tensor)));
      }
    }
    for (size_t t = 0; t < out_.size(); ++t) {
      if (!p_.described.tensors[t].by_row) put(p_, t, out_[t]);
    }
  }

 private:
  uint64_t row_bytes(const MatrixDescription::Tensor& t) const {
    return t.bytes() / static_cast<uint64_t>(p_.matrix.rows);
  }

  void multiply(const MatrixFactors& factors, uint64_t row, uint64_t rows) {
    for (uint64_t r = 0; r < rows; ++r) {
      float* w = weights_.data() + r * columns_;
      const float of_row = factors.rows.empty() ? 1 : factors.rows[row + r];
      for (uint64_t i = 0; i < columns_; ++i) w[i] *= of_row * (factors.columns.empty() ? 1 : factors.columns[i]);
    }
  }

  void encode(uint64_t row, uint64_t rows) {
    std::vector<void*> out;
    for (std::vector<std::byte>& bytes : out_) out.push_back(bytes.data());
    auto call = sdk::abi_struct<tenon_encode>();
    call.row0 = row;
    call.rows = rows;
    call.data = weights_.data();
    call.observed = input_.observed.empty() ? nullptr : input_.observed.data();
    const bool scaled = input_.factors != nullptr && !input_.factors->columns.empty();
    call.factor = scaled ? input_.factors->columns.data() : nullptr;
    call.out = out.data();
    p_.scheme->encode(p_.matrix, call);
  }

  const Weights& model_;
  const PlannedTensor& p_;
  MatrixInput input_;
  uint64_t rows_, columns_;                  // rows: of a call
  std::vector<float> weights_;               // (rows, columns)
  std::vector<std::vector<std::byte>> out_;  // there is one for each tensor of the description
};

}  // namespace

void read_weights(const Weights& model, const WeightTensor& tensor, uint64_t row, uint64_t rows, std::span<float> out) {
  const uint64_t row_bytes = tensor.bytes / (weights::element_count(tensor) / (out.size() / rows));
  std::vector<std::byte> raw(rows * row_bytes);
  model.read(tensor, row * row_bytes, raw);
  sdk::unpack_row(tensor.format, raw.data(), out.size(), out.data());
  const auto bad = weights::find_not_finite(out.data(), out.size());
  if (bad) weights::refuse_weight(model, tensor, row * (out.size() / rows) + bad->index, bad->why);
}

void encode_matrices(const Weights& model, std::span<const PlannedTensor* const> matrices, const InputOf& input,
                     const PutEncoded& put) {
  uint64_t largest = 1;
  for (const PlannedTensor* p : matrices) {
    largest = std::max(largest, rows_a_call(*p) * static_cast<uint64_t>(p->matrix.columns));
  }
  const uint64_t threads = std::clamp<uint64_t>(
      std::min<uint64_t>(std::thread::hardware_concurrency(), kWeightsAtOnce / largest), 1, kMostThreads);
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  const PutEncoded put_alone = [&](const PlannedTensor& p, size_t index, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex);
    if (!error) put(p, index, bytes);
  };
  const auto work = [&] {
    try {
      for (size_t i = next++; i < matrices.size(); i = next++) {
        MatrixWay(model, *matrices[i], input(*matrices[i])).run(put_alone);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      next = matrices.size();
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      for (uint64_t i = 1; i < std::min<uint64_t>(threads, matrices.size()); ++i) others.emplace_back(work);
    } catch (const std::system_error&) {
      // The system starts no more threads: those that run share the matrices.
    } catch (...) {
      next = matrices.size();
      throw;
    }
    work();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace tenon
