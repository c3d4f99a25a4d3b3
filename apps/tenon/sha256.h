// This is SHA-256 (FIPS 180-4), for hashes of outputs.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tenon::app {

std::string sha256_hex(std::span<const uint8_t> bytes);
std::string sha256_hex(std::span<const int32_t> tokens);  // takes the ids as little-endian 32-bit integers
// Returns the first 8 digits of that, which show that a change left the output as it was.
std::string output_hash(std::span<const int32_t> tokens);

}  // namespace tenon::app
