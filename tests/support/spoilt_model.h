// This makes a copy of a small checkpoint with some of its numbers changed.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "tenon/sdk/convert.h"
#include "tenon/sdk/gguf_blocks.h"
#include "weights_writer.h"

namespace tenon::test {

// This copies a Hugging Face folder whose one model.safetensors holds f32, bf16 or f16. The copy is gone with the object.
class SpoiltModel {
 public:
  explicit SpoiltModel(const std::filesystem::path& model) {
    std::filesystem::copy(model, folder_.path(), std::filesystem::copy_options::recursive);
    std::ifstream file(weights(), std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    uint64_t header = 0;
    std::memcpy(&header, bytes_.data(), sizeof(header));
    data_ = sizeof(header) + header;
    tensors_ = boost::json::parse(std::string_view(bytes_).substr(sizeof(header), header)).as_object();
  }

  const std::filesystem::path& path() const { return folder_.path(); }

  // Elements [first, first + count) of a tensor become change(element); all from the first on for a count of 0.
  SpoiltModel& change(const std::string& tensor, size_t first, size_t count,
                      const std::function<float(float)>& change) {
    const boost::json::array& offsets = tensors_.at(tensor).at("data_offsets").as_array();
    const auto begin = offsets[0].to_number<size_t>(), end = offsets[1].to_number<size_t>();
    const boost::json::string& dtype = tensors_.at(tensor).at("dtype").as_string();
    const tenon_format format = dtype == "BF16" ? TENON_BF16 : dtype == "F16" ? TENON_F16 : TENON_F32;
    const size_t bytes = tenon_format_block(format).bytes;
    const size_t elements = (end - begin) / bytes, last = count == 0 ? elements : first + count;
    for (size_t i = first; i < last; ++i) {
      char* at = bytes_.data() + data_ + begin + i * bytes;
      float value = 0;
      sdk::unpack_row(format, at, 1, &value);
      value = change(value);
      const uint16_t half = format == TENON_F16 ? sdk::float_to_half(value) : sdk::float_to_bf16(value);
      std::memcpy(at, format == TENON_F32 ? static_cast<const void*>(&value) : &half, bytes);
    }
    testing::write_file(weights(), bytes_);
    return *this;
  }
  SpoiltModel& set(const std::string& tensor, size_t element, float value) {
    return change(tensor, element, 1, [value](float) { return value; });
  }
  SpoiltModel& scale(const std::string& tensor, float factor) {
    return change(tensor, 0, 0, [factor](float x) { return x * factor; });
  }

 private:
  std::filesystem::path weights() const { return folder_.path() / "model.safetensors"; }

  testing::ScratchFolder folder_;
  std::string bytes_;
  size_t data_ = 0;
  boost::json::object tensors_;
};

}  // namespace tenon::test
