// Tests read with this the files that the scripts beside it wrote.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "support/pipelines.h"

namespace tenon::golden {

inline const std::filesystem::path kData = test::root() / "tests/golden/data";

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline boost::json::value read_json(const std::filesystem::path& path) {
  return boost::json::parse(read_file(path));
}

inline std::vector<int32_t> ids_of(const boost::json::value& list) {
  std::vector<int32_t> ids;
  for (const auto& v : list.as_array()) ids.push_back(static_cast<int32_t>(v.as_int64()));
  return ids;
}

inline std::vector<float> floats_of(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(values.data()));
  return values;
}

// Names a case after its checkpoint, as googletest allows names.
inline std::string checkpoint_name(const ::testing::TestParamInfo<std::string>& checkpoint) {
  std::string name = checkpoint.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace tenon::golden
