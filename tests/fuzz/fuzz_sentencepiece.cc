// tokenizer.model comes from a stranger: it is refused with an Error, or it encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "model/tokenizer/sentencepiece_model.h"
#include "model/tokenizer/sentencepiece_tokenizer.h"
#include "tenon/core/error.h"
#include "tenon/core/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    tenon::text::SentencePieceParts parts;
    parts.file = "fuzz";
    parts.serialized.assign(reinterpret_cast<const char*>(data), size);
    parts.model = tenon::text::parse_sentencepiece(parts.serialized, parts.file);
    const auto tokenizer = tenon::text::make_sentencepiece_tokenizer(std::move(parts));
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
