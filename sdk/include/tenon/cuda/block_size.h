// A block takes one of two sizes of shared memory, so that kernels that overlap share all multiprocessors evenly; or it takes so
// much that nothing fits beside it (TENON_BLOCKS_WHOLE), and they take turns.
//
// A multiprocessor (227 KB) holds a small block beside a large one, and never two large ones. Kernels that follow
// each other as small, large, small, large lie evenly: a large one finds no room where it already is, a small one
// none where both are. Without that rule the blocks of a kernel pile up in pairs wherever a kernel of few blocks
// left room, and what follows runs at a third of its speed. In a layer these are: qkv small, attention at most
// small, o large, gate and up small, down large.
//
// An op names the classes that it can run as (OpSpec::blocks), and the host chooses one while recording: large if the
// op before is small. The first op that has the choice is small, so that all layers come out alike.
// Launch::block_size() says which was chosen.
#pragma once

#include <cstdint>

namespace tenon::cuda {

enum class BlockSize : uint32_t { kSmall, kLarge };
inline constexpr uint32_t kSmallBlockBytes = 94 << 10, kLargeBlockBytes = 130 << 10;

}  // namespace tenon::cuda
