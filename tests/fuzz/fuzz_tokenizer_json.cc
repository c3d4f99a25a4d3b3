// tokenizer.json comes from a stranger: it is refused with an Error, or it encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/tokenizer/tokenizer_json.h"
#include "tenon/core/error.h"
#include "tenon/core/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    auto file = tenon::text::parse_tokenizer_json({reinterpret_cast<const char*>(data), size}, "fuzz");
    file.parts.vocabulary = tenon::text::Vocabulary(file.tokens);
    const auto tokenizer = tenon::text::make_bpe_tokenizer(std::move(file.parts));
    for (const std::string_view text : {"", " ", "Hello, it's 12 o'clock\n\n  <s>",
                                        "e\u0301\u4F60\U0001F468\u200D\U0001F469", "a\xF0\x9F<0x0A>\xFF"}) {
      for (const bool special : {false, true}) {
        const auto ids = tokenizer->encode(text, {.add_special = special, .parse_special = special});
        tenon::decode(*tokenizer, ids, {.show_control = special});
      }
    }
  } catch (const tenon::Error&) {
  }
  return 0;
}
