// CUDA components record their ops with this: emit<Fn>() records one, and Fn launches its kernels through the Launch
// that it is given. docs/glossary.md has the words. An example:
//
//   enum Operand { kX, kY };  // in the order of `operands`
//   void run(const Args& args, const cuda::Launch& launch) {
//     launch(&my_kernel, {.blocks = {args.rows}, .threads = {128}}, launch.ptr<const float>(kX), launch.ptr<float>(kY),
//            args);
//   }
//   cuda::emit<run>(recorder, {.name = "my_op", .operands = operands, .chunks = {}}, args);
//
// emit() is called while a program is recorded, and throws Failed. Fn is called where tenon_op.launch is
// ([capture] in tenon/abi/program.h): its launches may be captured once and replayed, so it waits for nothing
// and reads no tensor. It may throw Failed.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>
#include <utility>

#include "tenon/abi/program.h"
#include "tenon/cuda/block_size.h"
#include "tenon/cuda/error.h"
#include "tenon/sdk/recorder.h"

namespace tenon::cuda {

using enum sdk::CostTerm;

struct Grid {
  dim3 blocks, threads;     // threads: in a block
  size_t shared_bytes = 0;  // dynamic shared memory of a block; see block_size.h
  dim3 cluster = {};        // blocks of a cluster; more than one needs sm_90
};

// Says whether a kernel was compiled for clusters, which sm_90 and later have. Throws Failed.
template <class... P>
bool has_clusters(void (*kernel)(P...)) {
  constexpr int kSince = 90;
  cudaFuncAttributes attributes{};
  TENON_CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
  return attributes.ptxVersion >= kSince;
}

// This is the host's side of one launch of an op: addresses, stream, and how its kernels are to be launched.
class Launch {
 public:
  explicit Launch(const tenon_launch* raw) : raw_(raw) {}

  // Returns the address of an operand, by its number in OpSpec::operands. Memory is the device's; the host owns
  // it, as it owns the scratch memory below.
  template <class T>
  T* ptr(size_t operand) const {
    return static_cast<T*>(raw_->ptr[operand]);
  }
  template <class T = void>
  T* scratch() const {  // it has OpSpec::scratch_bytes; other ops use it too, so kernels touch it after the wait
    return static_cast<T*>(raw_->scratch);
  }
  template <class T = void>
  T* zeroed() const {  // it has OpSpec::zeroed_bytes of the op's own; the op finds and leaves them zero
    return static_cast<T*>(raw_->zeroed);
  }
  // Returns what the host chose of the sizes that the op names in OpSpec::blocks (block_size.h).
  BlockSize block_size() const { return raw_->blocks == TENON_BLOCKS_LARGE ? BlockSize::kLarge : BlockSize::kSmall; }
  // Says whether an operand is stable: kernels may read it before the wait, since
  // no earlier op of the program writes to it.
  bool stable(size_t operand) const { return (raw_->stable >> operand & 1) != 0; }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(raw_->queue); }

  // Launches a kernel, with programmatic dependent launch where the host allows it. Throws Failed.
  template <class... P, class... A>
  void operator()(void (*kernel)(P...), const Grid& grid, A&&... args) const {
    // Kernels share a multiprocessor only if it is divided alike for all of them.
    TENON_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
    constexpr size_t kPlainSharedBytes = 48 << 10;
    if (grid.shared_bytes > kPlainSharedBytes) {
      TENON_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(grid.shared_bytes)));
    }
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config{};
    config.gridDim = grid.blocks;
    config.blockDim = grid.threads;
    config.dynamicSmemBytes = grid.shared_bytes;
    config.stream = stream();
    config.attrs = attributes;
    if ((raw_->flags & TENON_LAUNCH_OVERLAP) != 0) {
      cudaLaunchAttribute& a = attributes[config.numAttrs++];
      a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      a.val.programmaticStreamSerializationAllowed = 1;
    }
    if (grid.cluster.x * grid.cluster.y * grid.cluster.z > 1) {
      cudaLaunchAttribute& a = attributes[config.numAttrs++];
      a.id = cudaLaunchAttributeClusterDimension;
      a.val.clusterDim.x = grid.cluster.x;
      a.val.clusterDim.y = grid.cluster.y;
      a.val.clusterDim.z = grid.cluster.z;
    }
    TENON_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<P>(std::forward<A>(args))...));
  }

 private:
  const tenon_launch* raw_;
};

// Emits an op that runs on a queue. Fn is a void (const Args&, const Launch&). Args is trivially copyable and has no
// pointers: the program keeps a copy. flags is TENON_OP_FOREIGN for kernels that do not keep the overlap contract
// (tenon/abi/program.h). Throws Failed if the recorder does not take the op.
template <auto Fn, class Args>
void emit(sdk::Recorder& recorder, const sdk::OpSpec& spec, const Args& args, uint32_t flags = 0) {
  static_assert(std::is_trivially_copyable_v<Args> && alignof(Args) <= 8);
  auto op = sdk::abi_struct<tenon_op>();
  op.name = spec.name;
  op.flags = flags;
  op.blocks = spec.blocks;
  op.operand = spec.operands.data();
  op.n_operands = static_cast<uint32_t>(spec.operands.size());
  op.args = &args;
  op.args_bytes = sizeof(Args);
  op.scratch_bytes = spec.scratch_bytes;
  op.zeroed_bytes = spec.zeroed_bytes;
  op.cost = spec.cost;
  op.launch = [](void*, const void* a, const tenon_launch* l, tenon_reason* why) -> tenon_status {
    return sdk::guard(why, [&] { Fn(*static_cast<const Args*>(a), Launch(l)); });
  };
  const tenon_recorder* raw = recorder.raw();
  if (raw->emit(raw->ctx, &op) != TENON_OK) throw sdk::Failed(std::string("op ") + spec.name + " was not taken");
}

}  // namespace tenon::cuda
