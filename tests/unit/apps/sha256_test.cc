// Known answers: the examples of FIPS 180-4, lengths around a block's end, and the hash of an output.
#include "sha256.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tenon::app {
namespace {

std::string hash_of(const std::string& text) {
  return sha256_hex(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

TEST(Sha256, GivesTheKnownAnswers) {
  EXPECT_EQ(hash_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash_of(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, FillsTheLastBlockAtEveryEdge) {
  EXPECT_EQ(hash_of(std::string(55, 'x')), "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072");
  EXPECT_EQ(hash_of(std::string(56, 'x')), "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e");
  EXPECT_EQ(hash_of(std::string(63, 'x')), "75220b47218278e656f2013bb8f0c455a25eaf01e86c64924e9d48d89776d6f2");
  EXPECT_EQ(hash_of(std::string(64, 'x')), "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c");
  EXPECT_EQ(hash_of(std::string(65, 'x')), "9537c5fdf120482f7d58d25e9ed583f52c02b4e304ea814db1633ad565aed7e9");
}

// The sum is of tokens as 32 bits each, the lowest byte first; an output's is the beginning.
TEST(Sha256, OfTokensIsThatOfTheirBytes) {
  const std::vector<int32_t> tokens = {1, 2, 3, -1, 260, 1 << 30};
  EXPECT_EQ(sha256_hex(tokens), "83ccce290066090bcb98f864bca07d44c4ffbd597a84c1f73bc7d9dc3cd5e869");
  EXPECT_EQ(output_hash(tokens), "83ccce29");
}

}  // namespace
}  // namespace tenon::app
