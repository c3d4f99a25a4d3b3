#include "json_value.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

namespace tenon::jinja {

Value from_json(const boost::json::value& value) {
  if (value.is_null()) return {};
  if (value.is_bool()) return value.get_bool();
  if (value.is_int64()) return value.get_int64();
  if (value.is_uint64()) throw Failure("the number " + std::to_string(value.get_uint64()) + " is beyond 64 bits");
  if (value.is_double()) return value.get_double();
  if (value.is_string()) return Text(std::string_view(value.get_string()), Origin::kUser);
  if (value.is_array()) {
    Values items;
    for (const boost::json::value& item : value.get_array()) items.push_back(from_json(item));
    return make_list(std::move(items));
  }
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, inner] : value.get_object())
    dict->set(Text(std::string_view(key.data(), key.size()), Origin::kUser), from_json(inner));
  return std::shared_ptr<const Dict>(std::move(dict));
}

}  // namespace tenon::jinja
