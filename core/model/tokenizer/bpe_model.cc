// This is byte pair encoding (Sennrich et al., arXiv:1508.07909). A short piece is scanned for the best pair after each
// merge; a long one has its candidate pairs in a heap, the first learnt and of those the leftmost on top. Both give the
// same tokens.
#include "bpe_model.h"

#include <algorithm>
#include <bit>
#include <string>

#include "byte_alphabet.h"
#include "utf8.h"

namespace tenon::text {
namespace {

// Up to this many symbols a scan for the best pair beats the bookkeeping of a queue.
constexpr size_t kShort = 32;
constexpr uint64_t kFree = UINT64_MAX;  // this is no pair, since ids are not negative

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

size_t spread(uint64_t key, int shift) {
  return (key * 0x9E3779B97F4A7C15u) >> shift;
}

std::string byte_token(uint8_t byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + '>';
}

}  // namespace

BpeModel::BpeModel(const Vocabulary& vocabulary, const std::vector<MergeRule>& merges, const BpeOptions& options)
    : vocabulary_(&vocabulary), options_(options) {
  const size_t slots = std::bit_ceil(merges.size() * 2 + 2);
  shift_ = 64 - std::countr_zero(slots);
  rules_.assign(slots, Rule{kFree, kNoRank, -1});
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t key = pair_key(merges[rank].left, merges[rank].right);
    size_t at = spread(key, shift_);
    while (rules_[at].pair != kFree && rules_[at].pair != key) at = (at + 1) & (slots - 1);
    rules_[at] = {key, static_cast<uint32_t>(rank), merges[rank].merged};
  }
  for (uint16_t byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = vocabulary.find(ByteAlphabet::get().character(static_cast<uint8_t>(byte))).value_or(-1);
    fallback_ids_[byte] = vocabulary.find(byte_token(static_cast<uint8_t>(byte))).value_or(-1);
  }
}

const BpeModel::Rule* BpeModel::rule(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  size_t at = spread(key, shift_);
  while (rules_[at].pair != key) {
    if (rules_[at].pair == kFree) return nullptr;
    at = (at + 1) & (rules_.size() - 1);
  }
  return &rules_[at];
}

void BpeModel::encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const {
  if (options_.ignore_merges) {
    if (const auto id = vocabulary_->find(piece)) return out.push_back(*id);
  }
  scratch.ids.clear();
  characters(piece, scratch.ids);
  merge(scratch, out);
}

void BpeModel::encode_bytes(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const {
  if (options_.ignore_merges) {
    if (const auto id = vocabulary_->find(ByteAlphabet::get().encode(piece))) return out.push_back(*id);
  }
  scratch.ids.clear();
  for (const char c : piece) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id < 0) return encode(ByteAlphabet::get().encode(piece), scratch, out);
    scratch.ids.push_back(id);
  }
  merge(scratch, out);
}

// An unknown waits until the next known character, because it may grow; bytes of a fallback overtake it.
void BpeModel::characters(std::string_view piece, std::vector<int32_t>& ids) const {
  bool unknown_waits = false;
  for (size_t at = 0; at < piece.size();) {
    const std::string_view character = piece.substr(at, first_unit(piece.substr(at)).length);
    at += character.size();
    if (const auto id = vocabulary_->find(character)) {
      if (unknown_waits) ids.push_back(*options_.unknown);
      unknown_waits = false;
      ids.push_back(*id);
      continue;
    }
    const auto fallback = [&](char c) { return fallback_ids_[static_cast<uint8_t>(c)]; };
    if (options_.byte_fallback &&
        std::all_of(character.begin(), character.end(), [&](char c) { return fallback(c) >= 0; })) {
      for (const char c : character) ids.push_back(fallback(c));
    } else if (options_.unknown) {
      if (unknown_waits && !options_.fuse_unknown) ids.push_back(*options_.unknown);
      unknown_waits = true;
    }
  }
  if (unknown_waits) ids.push_back(*options_.unknown);
}

void BpeModel::merge(BpeScratch& scratch, std::vector<int32_t>& out) const {
  if (scratch.ids.size() > kShort) {
    merge_long(scratch);
  } else if (scratch.ids.size() > 1) {
    merge_short(scratch);
  }
  out.insert(out.end(), scratch.ids.begin(), scratch.ids.end());
}

void BpeModel::merge_short(BpeScratch& scratch) const {
  std::vector<int32_t>& ids = scratch.ids;
  std::array<const Rule*, kShort> pairs;  // the rule of symbols i and i + 1
  size_t last = ids.size() - 1;
  for (size_t i = 0; i < last; ++i) pairs[i] = rule(ids[i], ids[i + 1]);
  while (last > 0) {
    size_t best = last;
    for (size_t i = 0; i < last; ++i) {
      if (pairs[i] && (best == last || pairs[i]->rank < pairs[best]->rank)) best = i;
    }
    if (best == last) break;
    ids[best] = pairs[best]->merged;
    std::copy(&ids[best + 1] + 1, ids.data() + last + 1, &ids[best + 1]);
    std::copy(&pairs[best] + 1, pairs.data() + last, &pairs[best]);
    --last;
    if (best < last) pairs[best] = rule(ids[best], ids[best + 1]);
    if (best > 0) pairs[best - 1] = rule(ids[best - 1], ids[best]);
  }
  ids.resize(last + 1);
}

// The symbols are in a doubly linked list, the candidate pairs in a heap. A candidate is stale when its pair no longer
// merges into what it says.
void BpeModel::merge_long(BpeScratch& scratch) const {
  std::vector<int32_t>& ids = scratch.ids;
  std::vector<BpeScratch::Link>& links = scratch.links;
  std::vector<BpeScratch::Candidate>& queue = scratch.queue;
  const auto count = static_cast<int32_t>(ids.size());
  const auto later = [](const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  const auto consider = [&](int32_t at) {
    if (links[at].next >= count) return;
    if (const Rule* r = rule(ids[at], ids[links[at].next])) {
      queue.push_back({r->rank, at, r->merged});
      std::push_heap(queue.begin(), queue.end(), later);
    }
  };
  links.resize(ids.size());
  queue.clear();
  for (int32_t i = 0; i < count; ++i) links[i] = {i - 1, i + 1};
  for (int32_t i = 0; i < count; ++i) consider(i);
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), later);
    const auto [rank, at, merged] = queue.back();
    queue.pop_back();
    const auto [previous, next] = links[at];
    if (ids[at] < 0 || next >= count) continue;
    const Rule* r = rule(ids[at], ids[next]);
    if (r == nullptr || r->merged != merged) continue;
    ids[at] = merged;
    ids[next] = -1;
    links[at].next = links[next].next;
    if (links[at].next < count) links[links[at].next].previous = at;
    consider(at);
    if (previous >= 0) consider(previous);
  }
  std::erase(ids, -1);
}

}  // namespace tenon::text
