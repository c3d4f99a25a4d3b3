// A chat template and a conversation come from strangers: the template is refused with an Error, or it renders, within
// its limits. The input is the template and, after a zero byte, the variables as JSON.
#include <boost/json/parse.hpp>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/jinja/json_value.h"
#include "model/jinja/template.h"
#include "tenon/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), size);
  boost::json::error_code error;
  const auto json = boost::json::parse(input.substr(std::min(end + 1, size)), error);
  tenon::jinja::RenderOptions options;
  options.limits.steps = 100'000;
  options.limits.bytes = uint64_t{1} << 22U;
  try {
    const tenon::jinja::Template source(input.substr(0, end), "fuzz");
    const tenon::jinja::Value variables =
        error || !json.is_object() ? tenon::jinja::Value() : tenon::jinja::from_json(json);
    source.render(variables.as_dict() != nullptr ? *variables.as_dict() : tenon::jinja::Dict(), options);
  } catch (const tenon::Error&) {
  } catch (const tenon::jinja::Failure&) {  // the JSON has failed
  }
  return 0;
}
