#include "../int8_rows/cuda_scheme.cuh"
// This comes after it, since kernels prepare x by what that declares.
#include "../published/cuda_scheme.cuh"
#include "../published/grouped_forms.cuh"
#include "scheme.h"

namespace tenon::compressed_tensors {

struct CudaSchema : Schema {
  static constexpr bool kRoutesRows = true;
  template <uint32_t kIndex>
  using Format = published::FormOf<kCodings, kIndex>;
};

namespace {

class RoundedRows : public int8_rows::CudaScheme<RoundedRows, RoundedSchema> {
 public:
  using Base = int8_rows::CudaScheme<RoundedRows, RoundedSchema>;
  using Site = RoundedSite<cuda::PackedSite>;
  using Base::Base;

  static tenon_format source(const tenon_linear& s, uint32_t mat) {
    (void)RoundedMatrix(s, mat);
    return rows::kInt8Rows;
  }
  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const> claims) const {
    return std::make_unique<Site>(std::move(*Base::bind(s, claims)), s);
  }
  // All rows come together, and scratch memory has their scales in f32.
  tenon_footprint footprint(Site& site) const {
    tenon_footprint f = Base::footprint(site);
    f.flags |= TENON_FOOTPRINT_WHOLE;
    f.load_bytes = *std::max_element(site.rows.begin(), site.rows.end()) * sizeof(float);
    return f;
  }
  // The host checks the scales; the codes stay on the GPU.
  void load(cuda::PackedSite& packed, const tenon_rows& src, void* const* store, void* scratch, void* queue) const {
    const auto& site = static_cast<const Site&>(packed);
    const auto stream = static_cast<cudaStream_t>(queue);
    const tenon_slice& stored = src.tensor[rows::kScale];
    std::vector<uint8_t> bytes(stored.bytes);
    TENON_CUDA_CHECK(cudaMemcpyAsync(bytes.data(), stored.data, bytes.size(), cudaMemcpyDeviceToHost, stream));
    TENON_CUDA_CHECK(cudaStreamSynchronize(stream));
    const std::vector<float> scales = site.rounded[src.mat].scales({bytes.data(), bytes.size()});
    // The copy comes back once host memory has been read, since that is no pinned memory.
    TENON_CUDA_CHECK(
        cudaMemcpyAsync(scratch, scales.data(), scales.size() * sizeof(float), cudaMemcpyHostToDevice, stream));
    cuda::launch_load(&int8_rows::take_kernel<Format>, src, queue, cuda::loaded_rows(site, src, store[0]),
                      site.scales(store[1], src), static_cast<const float*>(scratch));
  }
};

using Plain = published::CudaScheme<CudaSchema>;

}  // namespace
}  // namespace tenon::compressed_tensors

using CompressedTensors =
    tenon::compressed_tensors::Scheme<tenon::compressed_tensors::Plain, tenon::compressed_tensors::RoundedRows>;
TENON_PLUGIN(CompressedTensors);
