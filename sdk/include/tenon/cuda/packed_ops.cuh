// A scheme with packed weights records these ops: here are their arguments, their operands, and their launches.
#pragma once

#include <concepts>
#include <type_traits>

#include "tenon/cuda/op.h"
#include "tenon/cuda/routed_matvec.cuh"
#include "tenon/cuda/tile_gemm.cuh"

namespace tenon::cuda {

// These are the members of a product of packed weights: Matvec, RoutedMatvec, TileGemm.
template <class P>
concept PackedProduct = requires(const MatvecArgs& a, const MatvecPointers& p, const Launch& launch) {
  // Its op has this name.
  { P::kName } -> std::convertible_to<const char*>;
  // Returns the classes of blocks (TENON_BLOCKS_*) that can multiply x as it is. 0: x has to be prepared.
  { P::direct_classes(a) } -> std::same_as<uint32_t>;
  // These return the class of blocks that multiply prepared x, and the bytes that prepared x takes.
  { P::prepared_classes(a) } -> std::same_as<uint32_t>;
  { P::prepared_bytes(a) } -> std::same_as<uint64_t>;
  // The op needs so much memory.
  { P::scratch_bytes(a) } -> std::same_as<uint64_t>;
  { P::zeroed_bytes(a) } -> std::same_as<uint64_t>;
  // prepare() prepares x; multiply() multiplies, by blocks of that size.
  P::prepare(a, p, launch);
  P::multiply(a, p, BlockSize::kLarge, launch);
};

struct PackedArgs : MatvecArgs {
  uint32_t has_norm, has_bias, has_addend, padding;
};
// A product has these operands in order. x is as it is or prepared. From kScales on they are there only where the
// format, the site or the claimed chains have them; kRouting has the rows' experts or, of prepared rows, their groups.
struct PackedOperand {
  enum : uint32_t { kY, kX, kLive, kWeights, kScales, kRouting, kNorm, kBias, kAddend, kNormed, kNormedWeights };
};
// These are the operands of the op that prepares x, in order. kRouting and kNorm are there as in the product.
struct PrepareOperand {
  enum : uint32_t { kPrepared, kX, kLive, kRouting, kNorm };
};

template <PackedFormat F>
MatvecPointers packed_pointers(const PackedArgs& a, const Launch& launch) {
  MatvecPointers p{};
  p.y = launch.ptr<float>(PackedOperand::kY);
  p.x = launch.ptr<const float>(PackedOperand::kX);
  if (a.prepared != 0) p.prepared = launch.ptr<uint8_t>(PackedOperand::kX);
  p.live = launch.ptr<const uint32_t>(PackedOperand::kLive);
  p.weights = launch.ptr<const uint8_t>(PackedOperand::kWeights);
  sdk::PresentOperands present(launch, PackedOperand::kScales);
  p.scales = present.take<const float>(F::kRowScales);
  p.routing = present.take<const int32_t>(a.experts != 0);
  p.norm = present.take<const float>(a.has_norm != 0);
  p.bias = present.take<const float>(a.has_bias != 0);
  p.addend = present.take<const float>(a.has_addend != 0);
  p.normed = present.take<uint8_t>(a.normed != Tiled::kNo);
  p.normed_weights = present.take<const float>(a.normed != Tiled::kNo);
  return p;
}
inline MatvecPointers prepare_pointers(const PackedArgs& a, const Launch& launch) {
  MatvecPointers p{};
  p.prepared = launch.ptr<uint8_t>(PrepareOperand::kPrepared);
  p.x = launch.ptr<const float>(PrepareOperand::kX);
  p.live = launch.ptr<const uint32_t>(PrepareOperand::kLive);
  sdk::PresentOperands present(launch, PrepareOperand::kRouting);
  p.routing = present.take<const int32_t>(a.experts != 0);
  p.norm = present.take<const float>(a.has_norm != 0);
  return p;
}

template <PackedFormat F>
void run_packed(const PackedArgs& a, const Launch& launch) {
  Matvec<F>::multiply(a, packed_pointers<F>(a, launch), launch.block_size(), launch);
}
template <PackedFormat F>
void run_prepare(const PackedArgs& a, const Launch& launch) {
  Matvec<F>::prepare(a, prepare_pointers(a, launch), launch);
}
template <PackedFormat F>
void run_tiles(const PackedArgs& a, const Launch& launch) {
  TileGemm<F>::multiply(a, packed_pointers<F>(a, launch), launch.block_size(), launch);
}
template <PackedFormat F>
void run_prepare_halves(const PackedArgs& a, const Launch& launch) {
  TileGemm<F>::prepare(a, prepare_pointers(a, launch), launch);
}
template <PackedFormat F>
void run_routed(const PackedArgs& a, const Launch& launch) {
  RoutedMatvec<F>::multiply(a, packed_pointers<F>(a, launch), launch.block_size(), launch);
}
template <PackedFormat F>
void run_routed_prepare(const PackedArgs& a, const Launch& launch) {
  RoutedMatvec<F>::prepare(a, prepare_pointers(a, launch), launch);
}

}  // namespace tenon::cuda
