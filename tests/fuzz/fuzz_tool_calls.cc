// The calls in a model's answer and the text around them do not depend on the pieces in which it came, and arguments are
// JSON objects. The input is the form, the length of the pieces, and the answer.
#include <algorithm>
#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tool_calls.h"

using tenon::serve::CallFormat;
using tenon::serve::CallReader;
using tenon::serve::ParameterTypes;

namespace {

// These are the types of the parameters of a function f.
std::shared_ptr<const ParameterTypes> types() {
  static const auto kTypes = std::make_shared<const ParameterTypes>(
      boost::json::parse(R"([{"function": {"name": "f", "parameters": {"properties": {"t": {"type": "string"},
          "n": {"type": "integer"}, "b": {"type": ["boolean", "null"]}, "m": {"type": ["string", "null"]},
          "o": {"type": "object"}}}}}])")
          .get_array());
  return kTypes;
}

// This has the calls, and the text without them.
CallReader::Piece read(CallFormat format, std::string_view answer, size_t piece_bytes) {
  CallReader reader(format, types());
  CallReader::Piece all;
  const auto take = [&all](const CallReader::Piece& piece) {
    all.text += piece.text;
    all.calls.insert(all.calls.end(), piece.calls.begin(), piece.calls.end());
  };
  for (; answer.size() > piece_bytes; answer.remove_prefix(piece_bytes)) {
    take(reader.add(answer.substr(0, piece_bytes), false));
  }
  take(reader.add(answer, true));
  return all;
}

bool same(const tenon::serve::ToolCall& a, const tenon::serve::ToolCall& b) {
  return a.name == b.name && a.arguments == b.arguments;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMostPiece = 16;
  if (size < 2) return 0;
  const CallFormat formats[] = {CallFormat::kNone,    CallFormat::kHermes,    CallFormat::kMistral,
                                CallFormat::kLlama,   CallFormat::kQwenCoder, CallFormat::kGlm,
                                CallFormat::kHarmony, CallFormat::kDeepSeek3};
  const CallFormat format = formats[data[0] % std::size(formats)];
  const std::string_view answer(reinterpret_cast<const char*>(data) + 2, size - 2);
  const CallReader::Piece whole = read(format, answer, answer.size());
  const CallReader::Piece pieces = read(format, answer, 1 + data[1] % kMostPiece);
  if (whole.text != pieces.text || !std::ranges::equal(whole.calls, pieces.calls, same)) std::abort();
  for (const tenon::serve::ToolCall& call : whole.calls) {
    boost::json::error_code error;
    boost::json::parse_options options;
    options.max_depth = 64;             // a value of an argument may be as deep as a text is parsed by default
    options.allow_invalid_utf8 = true;  // answers of models are well-formed, and these are not
    if (!boost::json::parse(call.arguments, error, {}, options).is_object() || call.name.empty()) std::abort();
  }
  return 0;
}
