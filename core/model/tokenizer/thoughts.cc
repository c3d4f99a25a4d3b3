// ThoughtReader goes through an answer once and is in one state at a time (thoughts.h): before, in or after a thought
// of <think>; or, in channels, in the header of a message or in its content. It looks for marks in the text, so the
// text has to show their tokens, which thought_tokens() names.
//
// Invariants: what was handed out stays as it is, since text that may be the beginning of a mark waits, as do blanks
// that may be a thought's last. So the pieces, put together, are the same however the answer was cut; the test reads
// its answers in pieces of every size. No other state follows kText: whatever comes then is text, marks as well. An
// answer in channels comes there if what should be a header is none, or is longer than kLongestHeader.
#include "tenon/core/thoughts.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tenon/core/tokenizer.h"

namespace tenon {
namespace {

constexpr std::string_view kBegin = "<think>", kEnd = "</think>", kBlanks = " \t\r\n";

// Returns the length of the longest beginning of `marker` that the text ends with.
size_t begun_at_end(std::string_view text, std::string_view marker) {
  size_t length = std::min(text.size(), marker.size() - 1);
  while (!marker.starts_with(text.substr(text.size() - length))) --length;
  return length;
}

constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kMessage = "<|message|>";
constexpr std::string_view kMessageEnd = "<|end|>", kTo = "to=", kFunctions = "functions.";
constexpr std::array kContentEnds = {kMessageEnd, std::string_view("<|call|>"), std::string_view("<|return|>"), kStart};
constexpr std::array kHeaderBegins = {kStart, kChannel, kMessage, std::string_view("<|constrain|>"), kTo};
constexpr size_t kLongestHeader = 256;  // in bytes; what is longer is none

// Says whether a text is a header, or may be the beginning of one.
bool may_be_header(std::string_view text, size_t longest) {
  if (text.size() > longest) return false;
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return std::any_of(kHeaderBegins.begin(), kHeaderBegins.end(),
                     [&](auto begin) { return text.starts_with(begin) || begin.starts_with(text); });
}

// Returns the word of a header after a mark; "" if the mark is not there.
std::string_view word_after(std::string_view header, std::string_view mark) {
  const size_t at = header.find(mark);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + mark.size());
  return rest.substr(0, rest.find_first_of(" \t\r\n<"));
}

}  // namespace

std::vector<int32_t> thought_tokens(Thoughts thoughts, const Tokenizer& tokenizer) {
  std::vector<std::string_view> marks;
  if (thoughts == Thoughts::kMayBe || thoughts == Thoughts::kBegun) marks = {kBegin, kEnd};
  if (thoughts == Thoughts::kChannels) {
    marks.assign(kHeaderBegins.begin(), kHeaderBegins.end());
    marks.insert(marks.end(), kContentEnds.begin(), kContentEnds.end());
  }
  std::vector<int32_t> ids;
  for (const std::string_view mark : marks) {
    const auto id = tokenizer.find(mark);
    if (id && tokenizer.is_control(*id)) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

ThoughtReader::ThoughtReader(Thoughts thoughts)
    : state_(thoughts == Thoughts::kNone       ? State::kText
             : thoughts == Thoughts::kBegun    ? State::kOpening
             : thoughts == Thoughts::kChannels ? State::kHeader
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

// A message to a built-in tool is a thought: nobody runs it.
bool ThoughtReader::read_header(bool last, Piece& piece) {
  const size_t end = waiting_.find(kMessage);
  const bool ended = end != std::string::npos;
  const std::string header = waiting_.substr(0, end);
  if (!may_be_header(header, kLongestHeader + (ended ? 0 : kMessage.size() - 1))) {
    state_ = State::kText;
    return false;
  }
  if (!ended) {
    if (last) waiting_.clear();
    return false;
  }
  const std::string_view recipient = word_after(header, kTo);
  const bool thinks = !recipient.empty() || word_after(header, kChannel) == "analysis";
  content_ = recipient.starts_with(kFunctions) ? Content::kCall : thinks ? Content::kThought : Content::kText;
  if (content_ == Content::kCall) {
    if (!std::string_view(header).starts_with(kStart)) piece.text += kStart;
    piece.text.append(waiting_, 0, end + kMessage.size());
  }
  waiting_.erase(0, end + kMessage.size());
  fresh_ = true;
  state_ = State::kContent;
  return true;
}

bool ThoughtReader::read_content(bool last, Piece& piece) {
  size_t end = std::string::npos, skipped = 0, begun = 0;
  for (const std::string_view mark : kContentEnds) {
    if (const size_t at = waiting_.find(mark); at < end) {
      end = at;
      skipped = mark == kStart ? 0 : mark.size();  // <|start|> belongs to the next header
    }
    begun = std::max(begun, begun_at_end(waiting_, mark));
  }
  const bool ended = end != std::string::npos;
  const size_t sure = ended ? end : waiting_.size() - (last ? 0 : begun);
  std::string& to = content_ == Content::kThought ? piece.thought : piece.text;
  bool& before = content_ == Content::kThought ? thought_ : text_;
  if (sure > 0 && content_ != Content::kCall) {
    if (fresh_ && before) to += '\n';
    before = true;
    fresh_ = false;
  }
  to.append(waiting_, 0, sure);
  if (ended && content_ == Content::kCall) to += kMessageEnd;
  waiting_.erase(0, ended ? end + skipped : sure);
  if (ended) state_ = State::kHeader;
  return ended;
}

ThoughtReader::Piece ThoughtReader::add(std::string_view text, bool last) {
  Piece piece;
  waiting_ += text;
  while ((state_ == State::kHeader && read_header(last, piece)) ||
         (state_ == State::kContent && read_content(last, piece))) {
  }
  if (state_ == State::kBefore) look_for_begin(last);
  if (state_ == State::kOpening) skip_blanks(State::kInside);
  if (state_ == State::kInside) look_for_end(last, piece);
  if (state_ == State::kAfter) skip_blanks(State::kText);
  if (state_ == State::kText) piece.text = std::exchange(waiting_, {});
  return piece;
}

}  // namespace tenon
