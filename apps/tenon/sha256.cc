#include "sha256.h"

#include <array>
#include <bit>
#include <cmath>
#include <vector>

namespace tenon::app {
namespace {

// These are the first 32 bits of the fractions of the square and cube roots of the first primes.
struct Constants {
  std::array<uint32_t, 8> start{};
  std::array<uint32_t, 64> round{};
};

Constants make_constants() {
  Constants c;
  const auto fraction = [](long double root) {
    return static_cast<uint32_t>(std::floor((root - std::floor(root)) * 4294967296.0L));
  };
  size_t n = 0;
  for (int candidate = 2; n < 64; ++candidate) {
    bool prime = true;
    for (int d = 2; d * d <= candidate; ++d) prime = prime && candidate % d != 0;
    if (!prime) continue;
    if (n < 8) c.start[n] = fraction(std::sqrt(static_cast<long double>(candidate)));
    c.round[n++] = fraction(std::cbrt(static_cast<long double>(candidate)));
  }
  return c;
}

void compress(const Constants& c, const uint8_t* block, std::array<uint32_t, 8>& h) {
  std::array<uint32_t, 64> w{};
  for (size_t i = 0; i < 16; ++i) {
    for (size_t b = 0; b < 4; ++b) w[i] = w[i] << 8U | block[4 * i + b];
  }
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3U;
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10U;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  std::array<uint32_t, 8> v = h;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(v[4], 6) ^ std::rotr(v[4], 11) ^ std::rotr(v[4], 25);
    const uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
    const uint32_t t1 = v[7] + s1 + choice + c.round[i] + w[i];
    const uint32_t s0 = std::rotr(v[0], 2) ^ std::rotr(v[0], 13) ^ std::rotr(v[0], 22);
    const uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
    for (size_t j = 7; j > 0; --j) v[j] = v[j - 1];
    v[4] += t1;
    v[0] = t1 + s0 + majority;
  }
  for (size_t i = 0; i < 8; ++i) h[i] += v[i];
}

}  // namespace

std::string sha256_hex(std::span<const uint8_t> bytes) {
  static const Constants constants = make_constants();
  std::vector<uint8_t> message(bytes.begin(), bytes.end());
  message.push_back(0x80);
  while (message.size() % 64 != 56) message.push_back(0);
  const uint64_t bits = uint64_t{bytes.size()} * 8;
  for (int shift = 56; shift >= 0; shift -= 8) message.push_back(static_cast<uint8_t>(bits >> shift));
  std::array<uint32_t, 8> h = constants.start;
  for (size_t at = 0; at < message.size(); at += 64) compress(constants, message.data() + at, h);
  std::string hex;
  for (const uint32_t word : h) {
    for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[(word >> shift) & 15U];
  }
  return hex;
}

std::string sha256_hex(std::span<const int32_t> tokens) {
  std::vector<uint8_t> bytes;
  for (const int32_t token : tokens) {
    for (int shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<uint8_t>(static_cast<uint32_t>(token) >> shift));
  }
  return sha256_hex(std::span<const uint8_t>(bytes));
}

std::string output_hash(std::span<const int32_t> tokens) {
  return sha256_hex(tokens).substr(0, 8);
}

}  // namespace tenon::app
