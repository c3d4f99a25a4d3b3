// K types of GGUF have superblocks of 256 weights in 16 or 8 groups, whose scales (and minima) are integers of few bits
// times one fp16 number of the superblock. gguf_k_types.cc says how scales are found.
#pragma once

#include <cstdint>

namespace tenon::weights {

// They encode 256 finite weights to a block of tenon_format_block(), and return false where the
// superblock's scale does not fit in fp16.
bool encode_q2_k(const float* w, uint8_t* p);
bool encode_q3_k(const float* w, uint8_t* p);
bool encode_q4_k(const float* w, uint8_t* p);
bool encode_q5_k(const float* w, uint8_t* p);
bool encode_q6_k(const float* w, uint8_t* p);

}  // namespace tenon::weights
