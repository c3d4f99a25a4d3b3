// IQ4_NL and IQ4_XS of GGUF have codes that choose out of sixteen numbers (tenon/sdk/gguf_books.h), in groups of 32 with a
// scale each. gguf_iq4_types.cc says how scales are found.
#pragma once

#include <cstdint>

namespace tenon::weights {

// They encode 32 and 256 finite weights to a block of tenon_format_block(), and return false where the scale does not
// fit in fp16.
bool encode_iq4_nl(const float* w, uint8_t* p);
bool encode_iq4_xs(const float* w, uint8_t* p);

}  // namespace tenon::weights
