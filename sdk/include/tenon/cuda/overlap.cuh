// The device side of the overlap contract (tenon/abi/program.h). A kernel calls trigger() first, then reads what is
// stable (weights, step state, older keys and values), and calls wait() before it reads or writes anything else. Every
// block calls wait() on every path before it exits. On GPUs before Hopper both are nothing and kernels are launched
// plainly.
#pragma once

namespace tenon::cuda {

// The kernels behind may be launched now. Promises nothing about memory.
__device__ __forceinline__ void trigger() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// All that was recorded before this kernel is complete and visible.
__device__ __forceinline__ void wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace tenon::cuda
