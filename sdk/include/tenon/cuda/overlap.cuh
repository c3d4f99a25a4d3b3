// This is the device side of the overlap contract (tenon/abi/program.h). A kernel first reads what is stable (weights,
// step state, older keys and values), and calls wait() before it reads or writes anything else. Every block calls
// wait() on every path before it exits. On GPUs before Hopper these are nothing and kernels are launched plainly.
#pragma once

namespace tenon::cuda {

// Lets the next kernel begin as soon as there is room for it. This promises nothing about memory. It
// is for kernels whose blocks keep to the sizes of block_size.h; blocks of others would pile up on
// some multiprocessors and leave others empty.
__device__ __forceinline__ void trigger() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// After it, all that was recorded before this kernel is complete and visible. The next
// kernel may begin now, if it has not begun.
__device__ __forceinline__ void wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace tenon::cuda
