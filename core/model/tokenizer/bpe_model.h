// This is byte pair encoding (Sennrich et al., arXiv:1508.07909): a piece of text starts as single characters (or
// bytes), and the pair of neighbours that was learnt first is merged, leftmost first, until no known pair is left.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "vocabulary.h"

namespace tenon::text {

// The merged token has the text of left and right put together. Rules stand in the order in which they were learnt.
struct MergeRule {
  int32_t left;
  int32_t right;
  int32_t merged;
};

struct BpeOptions {
  bool ignore_merges = false;      // true: a piece that is a token is that token, whatever the merges say
  bool byte_fallback = false;      // true: a character that is no token becomes the tokens <0xHH> of its bytes
  std::optional<int32_t> unknown;  // it stands for characters that are no token; none = they vanish
  bool fuse_unknown = false;       // successive unknowns become one
};

struct BpeScratch {
  struct Link {
    int32_t previous;
    int32_t next;
  };
  struct Candidate {
    uint32_t rank;
    int32_t at;
    int32_t merged;
  };
  std::vector<int32_t> ids;
  std::vector<Link> links;
  std::vector<Candidate> queue;
};

class BpeModel {
 public:
  BpeModel() = default;
  // The vocabulary must outlive it, in place. If two rules have the same pair, the last one counts.
  BpeModel(const Vocabulary& vocabulary, const std::vector<MergeRule>& merges, const BpeOptions& options);

  // Appends the tokens of a piece of well-formed UTF-8, taken as it is or as the byte alphabet spells it.
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const;
  void encode_bytes(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const;

 private:
  struct Rule {
    uint64_t pair;
    uint32_t rank;
    int32_t merged;
  };
  static constexpr uint32_t kNoRank = UINT32_MAX;

  const Rule* rule(int32_t left, int32_t right) const;
  void characters(std::string_view piece, std::vector<int32_t>& ids) const;
  void merge(BpeScratch& scratch, std::vector<int32_t>& out) const;
  void merge_short(BpeScratch& scratch) const;
  void merge_long(BpeScratch& scratch) const;

  const Vocabulary* vocabulary_ = nullptr;
  BpeOptions options_;
  std::vector<Rule> rules_;  // open addressing; the size is a power of two
  int shift_ = 0;
  std::array<int32_t, 256> byte_ids_{};      // the tokens of the byte alphabet's characters; -1 = there is none
  std::array<int32_t, 256> fallback_ids_{};  // the tokens <0xHH>; -1 = there is none
};

}  // namespace tenon::text
