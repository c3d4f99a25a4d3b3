// The table of the instruction set that the source is compiled for; only for those sources.
#pragma once

#include "tenon/sdk/cpu/row_formats.h"

namespace tenon::none {
namespace {

using namespace sdk::cpu;
constexpr RowFormat kFormats[] = {row_format<F32Row>(), row_format<F16Row>(), row_format<Bf16Row>()};
constexpr KernelTable kTable{kRowOps, &tile_product, kFormats, sizeof(kFormats) / sizeof(kFormats[0])};

}  // namespace
}  // namespace tenon::none
