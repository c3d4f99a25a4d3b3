// The calls in a model's answer and the text around them do not depend on the pieces in which it came. The input is
// the form, the length of the pieces, and the answer.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tool_calls.h"

using tenon::serve::CallFormat;
using tenon::serve::CallReader;

namespace {

// This has the calls, and the text without them.
CallReader::Piece read(CallFormat format, std::string_view answer, size_t piece_bytes) {
  CallReader reader(format);
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
  const CallFormat formats[] = {CallFormat::kNone, CallFormat::kHermes, CallFormat::kMistral, CallFormat::kLlama};
  const CallFormat format = formats[data[0] % std::size(formats)];
  const std::string_view answer(reinterpret_cast<const char*>(data) + 2, size - 2);
  const CallReader::Piece whole = read(format, answer, answer.size());
  const CallReader::Piece pieces = read(format, answer, 1 + data[1] % kMostPiece);
  if (whole.text != pieces.text || !std::ranges::equal(whole.calls, pieces.calls, same)) std::abort();
  return 0;
}
