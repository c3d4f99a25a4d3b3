#include "json_text.h"

#include <cmath>

namespace tenon::app {
namespace {

void make_finite(boost::json::value& value) {
  if (boost::json::object* object = value.if_object()) {
    for (auto& member : *object) make_finite(member.value());
  } else if (boost::json::array* array = value.if_array()) {
    for (boost::json::value& element : *array) make_finite(element);
  } else if (const double* number = value.if_double(); number != nullptr && !std::isfinite(*number)) {
    value = nullptr;
  }
}

}  // namespace

std::string json_text(boost::json::value value) {
  make_finite(value);
  return boost::json::serialize(value);
}

}  // namespace tenon::app
