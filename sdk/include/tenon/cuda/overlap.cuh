// The device side of the overlap contract (tenon/abi/program.h). A kernel first reads what is stable (weights, step state,
// older keys and values), and calls wait() before it reads or writes anything else. Every block calls wait() on every path
// before it exits. On GPUs before Hopper it is nothing and kernels are launched plainly.
#pragma once

namespace tenon::cuda {

// All that was recorded before this kernel is complete and visible.
//
// Only now may the kernel behind begin, so that no more than one stands by while this one works. If all of them began as
// soon as they could, the blocks of several would fill the multiprocessors unevenly, and some would get two blocks of the
// kernel whose turn it is and others none (measured: a third of the speed).
__device__ __forceinline__ void wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace tenon::cuda
