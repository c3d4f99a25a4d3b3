// Every block format is held against the values that gguf-py gives for the same bytes.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <iterator>

#include "kernel_tables.h"

namespace tenon::test {
namespace {

std::string golden(const std::string& name) {
  std::ifstream in(std::string(TENON_SOURCE_DIR) + "/tests/golden/data/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(GoldenBlocks, EveryTableUnpacksWhatGgufPyDoes) {
  const std::string bytes = golden("gguf_blocks.bin"), values = golden("gguf_blocks.f32");
  const boost::json::value entries = boost::json::parse(golden("gguf_blocks.json"));
  ASSERT_EQ(entries.as_array().size(), 15u);
  for (const boost::json::value& entry : entries.as_array()) {
    const auto number = [&](const char* key) { return entry.at(key).to_number<uint32_t>(); };
    const tenon_format format = TENON_GGUF_FORMATS + number("ggml_type");
    const uint32_t k = number("blocks") * number("block_values");
    std::vector<float> expected(k);
    std::memcpy(expected.data(), values.data() + 4 * number("first_value"), 4 * k);
    const auto* row = reinterpret_cast<const uint8_t*>(bytes.data()) + number("first_byte");
    for (const NamedTable& table : gguf_tables()) {
      SCOPED_TRACE(table.name + " " + tenon_format_name(format));
      const sdk::cpu::RowFormat* kernel = table.kernels->find(format);
      ASSERT_NE(kernel, nullptr);
      std::vector<float> got(k);
      EXPECT_EQ(kernel->unpack(row, k, got.data()), 1);
      for (uint32_t i = 0; i < k; ++i) ASSERT_EQ(got[i], expected[i]) << "weight " << i;
    }
  }
}

}  // namespace
}  // namespace tenon::test
