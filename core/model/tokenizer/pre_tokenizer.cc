// This runs the steps of pre-tokenizers: each cuts the pieces that the step before has left. A step works on views of
// the text; only those that change bytes write to the scratch.
#include "pre_tokenizer.h"

#include <algorithm>

#include "byte_alphabet.h"

namespace tenon::text {
namespace {

// Joins neighbours as the behaviour says, in place. What is left marked as match is dropped.
void apply_behavior(SplitBehavior behavior, std::vector<Stretch>& stretches) {
  const bool backwards = behavior == SplitBehavior::kMergedWithNext;
  if (backwards) std::reverse(stretches.begin(), stretches.end());
  size_t kept = 0;
  bool previous = false;
  for (const Stretch& s : stretches) {
    const bool joins =
        kept > 0 && (behavior == SplitBehavior::kContiguous ? s.match == previous : s.match && !previous);
    previous = s.match;
    if (behavior == SplitBehavior::kRemoved) {
      stretches[kept++] = s;
    } else if (behavior == SplitBehavior::kIsolated || !joins) {
      stretches[kept++] = {s.begin, s.end, false};
    } else if (backwards) {
      stretches[kept - 1].begin = s.begin;
    } else {
      stretches[kept - 1].end = s.end;
    }
  }
  stretches.resize(kept);
  if (backwards) std::reverse(stretches.begin(), stretches.end());
}

struct StepApplied {
  PieceScratch& scratch;
  std::vector<Piece> out = {};

  void put(std::string text, bool at_start) { out.push_back({scratch.owned.emplace_back(std::move(text)), at_start}); }

  void operator()(const SplitStep& step) {
    for (const Piece& piece : scratch.pieces) {
      scratch.stretches.clear();
      step.pattern.stretches(piece.text, scratch.regex, scratch.stretches);
      if (step.invert) {
        for (Stretch& s : scratch.stretches) s.match = !s.match;
      }
      apply_behavior(step.behavior, scratch.stretches);
      for (const Stretch& s : scratch.stretches) {
        if (s.match || s.begin == s.end) continue;
        out.push_back({piece.text.substr(s.begin, s.end - s.begin), piece.at_start && s.begin == 0});
      }
    }
  }

  void operator()(const PrefixSpace&) {
    for (const Piece& piece : scratch.pieces) {
      if (piece.text.starts_with(' ')) {
        out.push_back(piece);
      } else {
        put(" " + std::string(piece.text), piece.at_start);
      }
    }
  }

  void operator()(const ByteMap&) {
    for (const Piece& piece : scratch.pieces) put(ByteAlphabet::get().encode(piece.text), piece.at_start);
  }

  void operator()(const SpaceMap& step) {
    for (const Piece& piece : scratch.pieces) {
      std::string text;
      for (const char c : piece.text) c == ' ' ? text.append(step.replacement) : text.append(1, c);
      const bool wanted =
          step.prepend == SpaceMap::Prepend::kAlways || (step.prepend == SpaceMap::Prepend::kFirst && piece.at_start);
      if (wanted && !text.starts_with(step.replacement)) text.insert(0, step.replacement);
      put(std::move(text), piece.at_start);
    }
  }
};

}  // namespace

PreTokenizer::PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {
  if (!steps_.empty() && std::holds_alternative<ByteMap>(steps_.back())) {
    ends_in_bytes_ = true;
    steps_.pop_back();
  }
}

const std::vector<Piece>& PreTokenizer::run(Piece text, PieceScratch& scratch) const {
  scratch.owned.clear();
  scratch.pieces.clear();
  if (!text.text.empty()) scratch.pieces.push_back(text);
  for (const PreTokenizerStep& step : steps_) {
    StepApplied apply{scratch};
    std::visit(apply, step);
    scratch.pieces = std::move(apply.out);
  }
  return scratch.pieces;
}

}  // namespace tenon::text
