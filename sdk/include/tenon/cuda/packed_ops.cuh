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
  uint32_t has_norm, has_bias, has_addend, has_order;
};
// A product has these operands. x is as it is or prepared. kRouting has the rows' experts or, of prepared rows, their
// groups. From kScales on kLive stands in the place of those that the format, the site or the claimed chains do not have.
struct PackedOperand {
  enum : uint32_t {
    kY,
    kX,
    kLive,
    kWeights,
    kScales,
    kRouting,
    kNorm,
    kBias,
    kAddend,
    kNormed,
    kNormedWeights,
    kOrder,
    kCount
  };
};
// The op that prepares x has these. The last three are those of the product.
struct PrepareOperand {
  enum : uint32_t { kPrepared, kX, kLive, kRouting, kNorm, kOrder, kCount };
};

template <PackedFormat F>
MatvecPointers packed_pointers(const PackedArgs& a, const Launch& launch) {
  using Operand = PackedOperand;
  MatvecPointers p{};
  p.y = launch.ptr<float>(Operand::kY);
  p.x = launch.ptr<const float>(Operand::kX);
  if (a.prepared != 0) p.prepared = launch.ptr<uint8_t>(Operand::kX);
  p.live = launch.ptr<const uint32_t>(Operand::kLive);
  p.weights = launch.ptr<const uint8_t>(Operand::kWeights);
  if (F::kRowScales) p.scales = launch.ptr<const float>(Operand::kScales);
  if (a.experts != 0) p.routing = launch.ptr<const int32_t>(Operand::kRouting);
  if (a.has_norm != 0) p.norm = launch.ptr<const float>(Operand::kNorm);
  if (a.has_bias != 0) p.bias = launch.ptr<const float>(Operand::kBias);
  if (a.has_addend != 0) p.addend = launch.ptr<const float>(Operand::kAddend);
  if (a.normed != Tiled::kNo) {
    p.normed = launch.ptr<uint8_t>(Operand::kNormed);
    p.normed_weights = launch.ptr<const float>(Operand::kNormedWeights);
  }
  if (a.has_order != 0) p.order = launch.ptr<const uint16_t>(Operand::kOrder);
  return p;
}
inline MatvecPointers prepare_pointers(const PackedArgs& a, const Launch& launch) {
  using Operand = PrepareOperand;
  MatvecPointers p{};
  p.prepared = launch.ptr<uint8_t>(Operand::kPrepared);
  p.x = launch.ptr<const float>(Operand::kX);
  p.live = launch.ptr<const uint32_t>(Operand::kLive);
  if (a.experts != 0) p.routing = launch.ptr<const int32_t>(Operand::kRouting);
  if (a.has_norm != 0) p.norm = launch.ptr<const float>(Operand::kNorm);
  if (a.has_order != 0) p.order = launch.ptr<const uint16_t>(Operand::kOrder);
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
