// This is device.cuda: one NVIDIA GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "tenon/abi/device.h"
#include "tenon/sdk/component.h"

namespace tenon::cuda_device {

class CudaDevice : public sdk::ComponentDefaults {
 public:
  static constexpr const char* kKind = "device";
  static constexpr const char* kName = "cuda";
  static constexpr const char* kInterface = "device/1";
  static constexpr const char* kDoc = "An NVIDIA GPU: its memory, streams and graphs";
  static constexpr auto kParams =
      sdk::params(sdk::boolean({.name = "overlap",
                                .doc = "Launch kernels before those ahead of them end, where "
                                       "the GPU can (Hopper and later)",
                                .value = true}));

  CudaDevice(const sdk::Params& params, const sdk::Env& env);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  void make_current() const;  // makes it the calling thread's; throws
  cudaStream_t new_stream();  // it lives as long as the device

  // Each instance has its own table.
  const tenon_device* instance_table() const { return &table_; }

 private:
  std::string name_;
  std::vector<cudaStream_t> streams_;
  tenon_device table_ = sdk::abi_struct<tenon_device>();
};

}  // namespace tenon::cuda_device
