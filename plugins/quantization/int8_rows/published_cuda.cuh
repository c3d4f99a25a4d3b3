// This is the base of sites of published checkpoints on a GPU whose rows of x become int8 (published/rounded.h).
// cuda_scheme.cuh comes before this.
#pragma once

#include <algorithm>
#include <vector>

#include "../published/rounded.h"

namespace tenon::int8_rows {

// T is the class of the scheme.
template <class T, Int8Rows Schema, published::RoundedMatrix Matrix>
class PublishedCudaScheme : public published::RoundedScheme<CudaScheme<T, Schema>, Matrix> {
 public:
  using Base = published::RoundedScheme<CudaScheme<T, Schema>, Matrix>;
  using Site = typename Base::Site;
  using Base::Base;

  static tenon_format source(const tenon_linear& s, uint32_t mat) {
    (void)Matrix(s, mat);
    need_width(s);
    return rows::kInt8Rows;
  }
  // Scratch memory has the scales of all rows in f32.
  tenon_footprint footprint(Site& site) const {
    tenon_footprint f = Base::footprint(site);
    f.load_bytes = *std::max_element(site.rows.begin(), site.rows.end()) * sizeof(float);
    return f;
  }
  // The host checks the small tensors; the codes stay on the GPU.
  void load(cuda::PackedSite& packed, const tenon_rows& src, void* const* store, void* scratch, void* queue) const {
    const auto& site = static_cast<const Site&>(packed);
    const auto stream = static_cast<cudaStream_t>(queue);
    std::vector<std::vector<uint8_t>> read;
    const std::vector<float> scales = site.row_scales(src.mat, [&](uint32_t t) -> tenon_slice {
      const tenon_slice& stored = src.tensor[t];
      std::vector<uint8_t>& bytes = read.emplace_back(stored.bytes);
      TENON_CUDA_CHECK(cudaMemcpyAsync(bytes.data(), stored.data, bytes.size(), cudaMemcpyDeviceToHost, stream));
      TENON_CUDA_CHECK(cudaStreamSynchronize(stream));
      return {bytes.data(), bytes.size()};
    });
    // The copy comes back once host memory has been read, since that is no pinned memory.
    TENON_CUDA_CHECK(
        cudaMemcpyAsync(scratch, scales.data(), scales.size() * sizeof(float), cudaMemcpyHostToDevice, stream));
    // Rows are looked for in the first tensor.
    tenon_rows codes = src;
    codes.tensor = src.tensor + site.matrix(src.mat).weights();
    cuda::launch_load(&take_kernel<typename Base::Format>, codes, queue, cuda::loaded_rows(site, codes, store[0]),
                      site.scales(store[1], src), static_cast<const float*>(scratch));
  }
};

}  // namespace tenon::int8_rows
