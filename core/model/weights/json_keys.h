// A JSON object may have a key twice by its grammar, and parsers then keep one of the values. Here that is an error.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tenon::weights {

// Returns the path of a key that stands twice in an object of the text, which is valid JSON, its parts joined by dots.
// Objects of more than 2000 keys are not looked at: vocabularies, whose reader finds ids that are missing, and lists of
// tensors.
std::optional<std::string> doubled_key(std::string_view text);

}  // namespace tenon::weights
