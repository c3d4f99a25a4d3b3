// These are the JSON files around safetensors: parsing with positions, and config.json as flat metadata.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <string_view>

#include "table_weights.h"

namespace tenon::weights {

// Throws Error(kModel) with file, line and column, and for a key that stands twice.
boost::json::value parse_json(std::string_view text, const std::string& file);

// Adds the entries of a JSON object under prefix + their keys, nested keys joined by dots; a dot or backslash of a key
// itself has a backslash before it. Null adds the key to the list kNullKeys, and an empty object an empty list of
// texts. A key that is there already keeps its value.
void flatten_json(const boost::json::object& object, const std::string& prefix, MetadataMap& metadata);

// Parses a file that must hold an object. Throws Error(kIo) where it cannot be read and Error(kModel)
// where it has more than `most` bytes or something else.
boost::json::object read_json_object(const std::filesystem::path& path, uint64_t most);

}  // namespace tenon::weights
