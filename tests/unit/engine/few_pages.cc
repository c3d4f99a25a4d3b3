// kv_cache.few_pages is kv_cache.static with a limit, as if the slots shared so many pages.
#include <algorithm>
#include <map>
#include <string>

#include "kv_cache/common/slot_cache.h"

namespace tenon::test {

class FewPages : public sdk::KvCache<FewPages>, public slot_cache::SlotCache {
 public:
  static constexpr const char* kName = "few_pages";
  static constexpr const char* kDoc = "Slots share a given number of pages";
  static constexpr auto kParams = sdk::params(
      sdk::text({.name = "format", .doc = "How an element is stored", .value = "fp16", .choices = "fp16|fp32"}),
      sdk::integer({.name = "pages", .doc = "Pages of all slots", .value = 16, .min = 1, .max = 1 << 20}),
      sdk::integer({.name = "page_tokens", .doc = "Tokens of a page", .value = 8, .min = 1, .max = 1 << 20}),
      sdk::boolean({.name = "tells", .doc = "Whether it tells how many pages are free", .value = true}));

  FewPages(const sdk::Params& params, const sdk::Env& env)
      : SlotCache(kName, sdk::kv_format(params.text("format") == "fp32" ? TENON_F32 : TENON_F16), {}, env),
        free_(static_cast<uint32_t>(params.integer("pages"))),
        page_tokens_(static_cast<uint32_t>(params.integer("page_tokens"))),
        tells_(params.boolean("tells")) {}

  uint32_t free_pages(uint32_t& page_tokens) const {
    page_tokens = tells_ ? page_tokens_ : 0;
    return tells_ ? free_ : 0;
  }
  void reserve(uint32_t slot, uint32_t kv_len) {
    SlotCache::reserve(slot, kv_len);
    const uint32_t held = held_[slot], wanted = std::max(held, pages(kv_len));
    if (wanted - held > free_) {
      throw sdk::NoSpace(std::to_string(wanted - held) + " pages more, and " + std::to_string(free_) + " are free");
    }
    free_ -= wanted - held;
    held_[slot] = wanted;
  }
  void truncate(uint32_t slot, uint32_t kv_len) {
    SlotCache::truncate(slot, kv_len);
    const uint32_t held = held_[slot], kept = std::min(held, pages(kv_len));
    free_ += held - kept;
    held_[slot] = kept;
  }

 private:
  uint32_t pages(uint32_t tokens) const { return (tokens + page_tokens_ - 1) / page_tokens_; }

  uint32_t free_, page_tokens_;
  bool tells_;
  std::map<uint32_t, uint32_t> held_;  // pages by slot
};

}  // namespace tenon::test

TENON_PLUGIN(tenon::test::FewPages);
