#include "tenon/core/thoughts.h"

#include <algorithm>
#include <utility>

namespace tenon {
namespace {

constexpr std::string_view kBegin = "<think>", kEnd = "</think>", kBlanks = " \t\r\n";

// Returns the length of the longest beginning of `marker` that the text ends with.
size_t begun_at_end(std::string_view text, std::string_view marker) {
  size_t length = std::min(text.size(), marker.size() - 1);
  while (!marker.starts_with(text.substr(text.size() - length))) --length;
  return length;
}

}  // namespace

ThoughtReader::ThoughtReader(Thoughts thoughts)
    : state_(thoughts == Thoughts::kNone    ? State::kText
             : thoughts == Thoughts::kBegun ? State::kOpening
                                            : State::kBefore) {}

void ThoughtReader::skip_blanks(State next) {
  const size_t first = waiting_.find_first_not_of(kBlanks);
  waiting_.erase(0, first);
  if (first != std::string::npos) state_ = next;
}

// Blanks may come before a thought. An answer without one keeps them.
void ThoughtReader::look_for_begin(bool last) {
  const size_t first = std::min(waiting_.find_first_not_of(kBlanks), waiting_.size());
  const std::string_view begun = std::string_view(waiting_).substr(first, kBegin.size());
  if (begun == kBegin) {
    waiting_.erase(0, first + kBegin.size());
    state_ = State::kOpening;
  } else if (last || !kBegin.starts_with(begun)) {
    state_ = State::kText;
  }
}

void ThoughtReader::look_for_end(bool last, Piece& piece) {
  const size_t end = waiting_.find(kEnd);
  const bool ended = end != std::string::npos;
  size_t sure = ended ? end : waiting_.size() - (last ? 0 : begun_at_end(waiting_, kEnd));
  // Blanks wait as well: they may be the thought's last.
  const size_t content = sure == 0 ? std::string::npos : waiting_.find_last_not_of(kBlanks, sure - 1);
  sure = content == std::string::npos ? 0 : content + 1;
  piece.thought.append(waiting_, 0, sure);
  waiting_.erase(0, ended ? end + kEnd.size() : last ? waiting_.size() : sure);
  if (ended) state_ = State::kAfter;
}

ThoughtReader::Piece ThoughtReader::add(std::string_view text, bool last) {
  Piece piece;
  waiting_ += text;
  if (state_ == State::kBefore) look_for_begin(last);
  if (state_ == State::kOpening) skip_blanks(State::kInside);
  if (state_ == State::kInside) look_for_end(last, piece);
  if (state_ == State::kAfter) skip_blanks(State::kText);
  if (state_ == State::kText) piece.text = std::exchange(waiting_, {});
  return piece;
}

}  // namespace tenon
