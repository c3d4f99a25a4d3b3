#include <charconv>

#include "tenon/core/error.h"
#include "tenon/core/tokenizer.h"
#include "vocabulary.h"

namespace tenon {
namespace {

constexpr size_t kLongestName = 12;  // <2147483647>

class IdTokenizer final : public Tokenizer {
 public:
  explicit IdTokenizer(int32_t vocab_size) {
    info_.kind = "ids";
    info_.vocab_size = vocab_size;
    names_.reserve(static_cast<size_t>(vocab_size), static_cast<size_t>(vocab_size) * 8);
    for (int32_t id = 0; id < vocab_size; ++id) names_.push_back('<' + std::to_string(id) + '>');
  }

  std::vector<int32_t> encode_parts(std::span<const TextPart> parts, bool) const override {
    std::vector<int32_t> ids;
    for (const TextPart& part : parts) {
      for (size_t at = 0; at < part.text.size();) {
        const std::string_view rest = part.text.substr(at, kLongestName);
        const size_t length = rest[0] == '<' ? rest.find('>') + 1 : 0;
        const auto id = find(rest.substr(0, length));
        ids.push_back(id.value_or(static_cast<uint8_t>(rest[0]) % info_.vocab_size));
        at += id ? length : 1;
      }
    }
    return ids;
  }

  std::string_view bytes(int32_t id) const override {
    return id >= 0 && id < info_.vocab_size ? names_[static_cast<size_t>(id)] : std::string_view();
  }
  bool is_control(int32_t) const override { return false; }

  std::optional<int32_t> find(std::string_view token) const override {
    if (token.size() < 3 || token.front() != '<' || token.back() != '>') return std::nullopt;
    int32_t id = -1;
    const char* end = token.data() + token.size() - 1;
    const auto [rest, error] = std::from_chars(token.data() + 1, end, id);
    if (error != std::errc() || rest != end || bytes(id) != token) return std::nullopt;
    return id;
  }

 private:
  text::StringTable names_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_id_tokenizer(int32_t vocab_size) {
  if (vocab_size < 1) throw Error(ErrorCode::kModel, "a vocabulary of " + std::to_string(vocab_size) + " tokens");
  return std::make_unique<IdTokenizer>(vocab_size);
}

}  // namespace tenon
