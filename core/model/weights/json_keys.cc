#include "json_keys.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <optional>
#include <vector>

#include "tenon/core/error.h"

namespace tenon::weights {
namespace {

// basic_parser calls these; true: it goes on.
class KeyHandler {
 public:
  using Code = boost::json::error_code;
  using Text = boost::json::string_view;

  static constexpr size_t max_object_size = SIZE_MAX, max_array_size = SIZE_MAX, max_key_size = SIZE_MAX,
                          max_string_size = SIZE_MAX;

  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_object_begin(Code&) {
    open_.emplace_back();
    return true;
  }
  bool on_object_end(size_t, Code&) {
    std::vector<std::string> keys = std::move(open_.back());
    open_.pop_back();
    if (keys.size() > kMostKeys || found_) return true;
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice == keys.end()) return true;
    found_.emplace();
    for (const std::vector<std::string>& outer : open_) *found_ += outer.back() + '.';
    *found_ += *twice;
    return true;
  }
  bool on_array_begin(Code&) { return true; }
  bool on_array_end(size_t, Code&) { return true; }
  bool on_key_part(Text text, size_t, Code&) {
    key_.append(text.data(), text.size());
    return true;
  }
  bool on_key(Text text, size_t, Code&) {
    key_.append(text.data(), text.size());
    open_.back().push_back(std::move(key_));
    key_.clear();
    return true;
  }
  bool on_string_part(Text, size_t, Code&) { return true; }
  bool on_string(Text, size_t, Code&) { return true; }
  bool on_number_part(Text, Code&) { return true; }
  bool on_int64(int64_t, Text, Code&) { return true; }
  bool on_uint64(uint64_t, Text, Code&) { return true; }
  bool on_double(double, Text, Code&) { return true; }
  bool on_bool(bool, Code&) { return true; }
  bool on_null(Code&) { return true; }
  bool on_comment_part(Text, Code&) { return true; }
  bool on_comment(Text, Code&) { return true; }

  // Returns the path of the first such key, its parts joined by dots.
  const std::optional<std::string>& found() const { return found_; }

 private:
  static constexpr size_t kMostKeys = 2000;

  std::vector<std::vector<std::string>> open_;  // the keys so far of each object that is not at its end
  std::string key_;
  std::optional<std::string> found_;
};

}  // namespace

void need_keys_once(std::string_view text, const std::string& file) {
  boost::json::basic_parser<KeyHandler> parser(boost::json::parse_options{});
  boost::json::error_code error;
  parser.write_some(false, text.data(), text.size(), error);
  if (const auto& key = parser.handler().found()) {
    throw Error(ErrorCode::kModel, {file}, "key \"" + *key + "\" stands twice");
  }
}

}  // namespace tenon::weights
