// A JSON object may have a key twice by its grammar, and parsers then keep one of the values. Here that is an error.
#pragma once

#include <string>
#include <string_view>

namespace tenon::weights {

// Throws Error(kModel) that names the path of a key that stands twice in an object of the text, which is valid JSON.
// Objects of more than 2000 keys are not looked at: vocabularies, whose reader finds ids that are missing, and lists of
// tensors.
void need_keys_once(std::string_view text, const std::string& file);

}  // namespace tenon::weights
