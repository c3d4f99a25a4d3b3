#include "tenon/cuda/product.h"

#include <map>
#include <mutex>

#include "tenon/cuda/error.h"
#include "tenon/cuda/gemm_tuning.h"

namespace tenon::cuda::detail {
namespace {

struct Runners {
  std::mutex mutex;
  std::map<int, ProductRunner> of_device;

  // The caller holds the mutex as long as it uses what is returned.
  ProductRunner& current() {
    int device = 0;
    TENON_CUDA_CHECK(cudaGetDevice(&device));
    auto found = of_device.find(device);
    if (found == of_device.end()) {
      // A first launch may be inside a capture, where making a handle is allowed only so.
      auto mode = cudaStreamCaptureModeRelaxed;
      TENON_CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
      found = of_device.try_emplace(device, device).first;
      TENON_CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    }
    return found->second;
  }
};
Runners& runners() {
  // They are never destroyed: at the process's end the driver may be gone already.
  static auto& all = *new Runners;
  return all;
}

}  // namespace

void run_product(const Product& p, const ProductPointers& at, cudaStream_t stream) {
  const std::lock_guard lock(runners().mutex);
  runners().current().run(p, at, stream);
}

bool has_algorithm(const Product& p) {
  const std::lock_guard lock(runners().mutex);
  return runners().current().has_algorithm(p);
}

}  // namespace tenon::cuda::detail
