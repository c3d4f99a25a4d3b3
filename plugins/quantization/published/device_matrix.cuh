// This packs matrices of published checkpoints on a GPU. Their tensors come in device memory, and are read on the host
// by the same code as on the CPU (matrix.h), which finds what is damaged and says where. Rows go back in batches, a
// byte a code, and a kernel packs them (tenon/cuda/packed.cuh): a block of threads has a row.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "matrix.h"
#include "tenon/cuda/grouped_formats.cuh"
#include "tenon/cuda/load_rows.cuh"

namespace tenon::published {

// This is the form of a matrix, and how many tensors come with it; form is null for a matrix that is not published.
struct DeviceMatrix {
  std::unique_ptr<Matrix> form;
  uint32_t n_tensors = 0;
};

// This is a batch of rows in device memory.
struct RowBatch {
  const uint8_t* code;     // (rows, k)
  const float* scale;      // (rows, scales)
  const uint8_t* zero;     // (rows, zeros): zero points, or scales in e4m3 besides; null: there are none
  uint32_t scales, zeros;  // a row has so many
  uint32_t each;           // scales of a group; 0: the row has the one
  uint32_t group;          // weights that share what is by group
};

namespace detail {

// A batch stays in the host's caches from when it is filled until it has been copied.
inline constexpr uint64_t kBatchBytes = uint64_t{4} << 20;

// A batch lies in memory as scales, codes and zero points.
struct BatchLayout {
  uint32_t k, group, scales, zeros, each;
  BatchLayout(const coded::Coding& c, uint32_t columns) : k(columns), group(c.group) {
    const auto groups = static_cast<uint32_t>(c.groups(columns));
    const bool sixteens = c.scaling == coded::Scaling::kSixteens;
    if (sixteens) group = 16;
    each = c.row_header() != 0 ? 0 : c.scaling == coded::Scaling::kOffset ? 2 : 1;
    scales = std::max(each * groups, 1U);
    zeros = sixteens ? 2 * groups : groups;
  }

  uint64_t row_bytes() const { return uint64_t{k} + scales * sizeof(float) + zeros; }
  uint32_t most_rows() const {
    return static_cast<uint32_t>(std::clamp<uint64_t>(kBatchBytes / row_bytes(), 1, UINT32_MAX));
  }
  uint64_t bytes(uint64_t rows) const { return rows * row_bytes(); }
  uint64_t codes_at(uint64_t rows) const { return rows * scales * sizeof(float); }
  uint64_t zeros_at(uint64_t rows) const { return codes_at(rows) + rows * k; }
};

// This is the place of a group in a segment, whose scales begin at `scales`.
struct RowGroup {
  uint8_t* scales;
  uint32_t row;    // its number in the tile
  uint32_t group;  // its number in the segment
};
struct GroupValues {
  const float* scale;  // one scale, or a scale and an offset
  uint32_t zero;       // a zero point, or a scale in e4m3
};
template <class Scales>
__device__ void put_group(const RowGroup& at, const GroupValues& values) {
  const auto [scales, row, group] = at;
  const auto [scale, zero] = values;
  uint8_t* to = scales + Scales::byte_offset(row, group);
  if constexpr (std::is_same_v<Scales, cuda::FloatScales>) {
    *reinterpret_cast<float*>(to) = *scale;
  } else if constexpr (std::is_same_v<Scales, cuda::FloatPairs>) {
    *reinterpret_cast<float2*>(to) = {scale[0], scale[1]};
  } else if constexpr (std::is_same_v<Scales, cuda::ExponentScales>) {
    *to = static_cast<uint8_t>(__float_as_uint(*scale) >> 23);
  } else if constexpr (std::is_same_v<Scales, cuda::E4m3Scales>) {
    *to = static_cast<uint8_t>(zero);
  } else if constexpr (!std::is_same_v<Scales, cuda::NoScales>) {
    if constexpr (std::is_same_v<Scales, cuda::HalfZeroPoints>) {
      *reinterpret_cast<__half*>(to) = __float2half_rn(*scale);
    } else {
      static_assert(std::is_same_v<Scales, cuda::ZeroPoints>);
      *reinterpret_cast<__nv_bfloat16*>(to) = __float2bfloat16_rn(*scale);
    }
    scales[Scales::zero_byte_offset(row, group)] = static_cast<uint8_t>(zero);
  }
}

// A thread has 64 k at a time, since no less has bytes of its own in every packed format.
template <class F>
__global__ void pack_kernel(const cuda::LoadedRows rows, const RowBatch batch, float* row_scales) {
  constexpr uint32_t kShare = 64;
  constexpr float kNoScale[2] = {};
  const uint32_t padded = cuda::segments_of<F>(rows.k) * F::kSegmentK;
  const uint32_t row = rows.packed_row(blockIdx.x), in_tile = row % cuda::kTileRows;
  const uint8_t* code = batch.code + size_t{blockIdx.x} * rows.k;
  const float* scale = batch.scale + size_t{blockIdx.x} * batch.scales;
  const uint8_t* zero = batch.zero + size_t{blockIdx.x} * batch.zeros;
  for (uint32_t begin = threadIdx.x * kShare; begin < padded; begin += blockDim.x * kShare) {
    for (uint32_t k = begin; k < begin + kShare; k += 8) {
      uint8_t* segment = rows.segment<F>(blockIdx.x, k);
      uint32_t q[8];
      for (uint32_t i = 0; i < 8; ++i) q[i] = k + i < rows.k ? code[k + i] : 0;
      F::put(segment, in_tile, k, q);
      if (k % F::kGroup != 0) continue;
      const bool there = k < rows.k;
      const uint32_t group = k / batch.group;
      put_group<typename F::Scales>(
          {segment + F::kScales, in_tile, k % F::kSegmentK / F::kGroup},
          {there ? scale + batch.each * group : kNoScale, there && batch.zero != nullptr ? uint32_t{zero[group]} : 0U});
    }
  }
  if constexpr (F::kRowScales) {
    if (threadIdx.x == 0) row_scales[row] = *scale;
  }
}

// This copies the tensors of a matrix to host memory.
class HostTensors {
 public:
  HostTensors(const tenon_rows& src, uint32_t n, cudaStream_t stream) {
    for (uint32_t i = 0; i < n; ++i) {
      const tenon_slice& tensor = src.tensor[i];
      const auto& bytes = bytes_.emplace_back(std::make_unique_for_overwrite<uint8_t[]>(tensor.bytes));
      slices_.push_back({bytes.get(), tensor.bytes});
      if (tensor.bytes == 0) continue;
      TENON_CUDA_CHECK(cudaMemcpyAsync(bytes.get(), tensor.data, tensor.bytes, cudaMemcpyDeviceToHost, stream));
    }
    TENON_CUDA_CHECK(cudaStreamSynchronize(stream));
  }
  // Returns src with the copies in the place of the device's tensors.
  tenon_rows rows(const tenon_rows& src) const {
    tenon_rows rows = src;
    rows.tensor = slices_.data();
    return rows;
  }

 private:
  std::vector<std::unique_ptr<uint8_t[]>> bytes_;
  std::vector<tenon_slice> slices_;
};

// A matrix goes to its site's stores, by way of memory for a batch.
struct Destination {
  const cuda::PackedSite& site;
  void* const* store;
  void* scratch;
  void* queue;
};

// This collects rows, and packs a batch of them when it is full.
template <class F>
class Batches {
 public:
  Batches(const coded::Coding& c, const tenon_rows& src, const Destination& to)
      : layout_(c, to.site.k),
        src_(src),
        to_(to),
        most_(even_rows(layout_.most_rows(), src.rows)),
        host_(std::make_unique_for_overwrite<uint8_t[]>(layout_.bytes(most_))) {}

  void put(const Row& row) {
    std::memcpy(host_.get() + uint64_t{n_} * layout_.scales * sizeof(float), row.scale, layout_.scales * sizeof(float));
    std::memcpy(host_.get() + layout_.codes_at(most_) + uint64_t{n_} * layout_.k, row.code, layout_.k);
    if (row.zero != nullptr) {
      std::memcpy(host_.get() + layout_.zeros_at(most_) + uint64_t{n_} * layout_.zeros, row.zero, layout_.zeros);
      has_zeros_ = true;
    }
    if (++n_ == most_) pack();
  }
  void pack() {
    if (n_ == 0) return;
    const auto stream = static_cast<cudaStream_t>(to_.queue);
    // The copy comes back once host memory has been read, since that is no pinned memory.
    TENON_CUDA_CHECK(cudaMemcpyAsync(to_.scratch, host_.get(), layout_.bytes(most_), cudaMemcpyHostToDevice, stream));
    const auto* at = static_cast<const uint8_t*>(to_.scratch);
    const RowBatch batch{at + layout_.codes_at(most_),
                         reinterpret_cast<const float*>(at),
                         has_zeros_ ? at + layout_.zeros_at(most_) : nullptr,
                         layout_.scales,
                         layout_.zeros,
                         layout_.each,
                         layout_.group};
    tenon_rows some = src_;
    some.row0 = src_.row0 + done_;
    some.rows = n_;
    const cuda::LoadedRows rows = cuda::loaded_rows(to_.site, some, to_.store[0]);
    float* row_scales = F::kRowScales ? to_.site.scales(to_.store[1], some) : nullptr;
    cuda::launch_load(&pack_kernel<F>, some, to_.queue, rows, batch, row_scales);
    done_ += n_;
    n_ = 0;
  }

 private:
  // As few batches as `most` allows have the same number of rows, since every batch is copied in its full size.
  static uint32_t even_rows(uint64_t most, uint64_t rows) {
    const uint64_t batches = std::max<uint64_t>((rows + most - 1) / most, 1);
    return static_cast<uint32_t>((rows + batches - 1) / batches);
  }

  BatchLayout layout_;
  const tenon_rows& src_;
  Destination to_;
  uint32_t most_, n_ = 0;
  uint64_t done_ = 0;
  bool has_zeros_ = false;
  std::unique_ptr<uint8_t[]> host_;
};

}  // namespace detail

// Returns the bytes of scratch memory that load() needs for matrices in a coding.
inline uint64_t batch_bytes(const coded::Coding& c, uint32_t k) {
  const detail::BatchLayout layout(c, k);
  return layout.bytes(layout.most_rows());
}

// Loads all rows of a matrix that is held in coding c, in the packed format F.
template <class F>
void load_matrix(const DeviceMatrix& matrix, const coded::Coding& c, const tenon_rows& src,
                 const detail::Destination& to) {
  const detail::HostTensors host(src, matrix.n_tensors, static_cast<cudaStream_t>(to.queue));
  detail::Batches<F> batches(c, src, to);
  matrix.form->load(host.rows(src), [&](uint64_t, const Row& row) { batches.put(row); });
  batches.pack();
}

}  // namespace tenon::published
