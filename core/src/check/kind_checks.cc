// What an interface must do in its corners: say no, with a reason, to what does not exist; write no more than it may.
#include <algorithm>
#include <vector>

#include "check/bench.h"
#include "check/checks.h"
#include "check/samples.h"

namespace tenon {
namespace {

constexpr tenon_format kNoSuchFormat = 9999;

void expect_refusal(tenon_status status, const Reason& why, const std::string& what) {
  if (status == TENON_OK) fail_check("takes " + what);
  if (*why.text == '\0') fail_check("refuses " + what + " and does not say why");
}

void attention(const Instance& i) {
  const auto& t = i.table<tenon_attention>();
  const auto none = sdk::abi_struct<tenon_chain>();
  const tenon_attn layer = some_layer(none);
  auto format = sdk::abi_struct<tenon_kv_format>();
  const tenon_bounds bounds = some_bounds();
  auto claim = sdk::abi_struct<tenon_claim>();
  Reason why;
  if (t.preferred_format(i.self(), &format, &why.raw) != TENON_OK) {
    fail_check(std::string("has no preferred format: ") + why.text);
  }
  if (t.claim(i.self(), &layer, &format, &bounds, &claim, &why.raw) != TENON_OK) {
    fail_check(std::string("refuses the format that it prefers: ") + why.text);
  }
  format.k.codec = format.v.codec = kNoSuchFormat;
  expect_refusal(t.claim(i.self(), &layer, &format, &bounds, &claim, &why.raw), why,
                 "a cache format that does not exist");
}

void quantization(const Instance& i) {
  const auto& t = i.table<tenon_quantization>();
  const int64_t rows = 32;
  const tenon_format source = kNoSuchFormat;
  const auto none = sdk::abi_struct<tenon_chain>();
  const tenon_linear site = some_site(none, rows, source);
  const tenon_bounds bounds = some_bounds();
  auto claim = sdk::abi_struct<tenon_claim>();
  Reason why;
  tenon_status status = t.claim(i.self(), &site, &bounds, &claim, &why.raw);
  void* bound = nullptr;
  const tenon_claim* const claims[] = {&claim};
  if (status == TENON_OK) status = t.bind(i.self(), &site, claims, 1, &bound, &why.raw);
  if (status == TENON_OK) t.unbind(i.self(), bound);
  expect_refusal(status, why, "a weight format that does not exist");
}

void kv_cache(const Instance& i) {
  const auto& t = i.table<tenon_kv_cache>();
  const tenon_kv_format* format = t.format(i.self());
  if (format == nullptr) fail_check("has no format");
  if (tenon_format_block(format->k.codec).bytes == 0) fail_check("keeps keys in a format that does not exist");
  const tenon_kv_geometry layer = some_geometry(0), second = some_geometry(1);
  const tenon_kv_geometry* const layers[] = {&layer, &second};
  const tenon_bounds bounds = some_bounds();
  auto footprint = sdk::abi_struct<tenon_footprint>();
  Reason why;
  if (t.plan(i.self(), layers, 2, &bounds, &footprint, &why.raw) != TENON_OK) {
    fail_check(std::string("cannot plan two small layers: ") + why.text);
  }
  if (footprint.n_stores > TENON_MAX_STORES) fail_check("plans more stores than there may be");
}

// A buffer that shows whether more than its first bytes were written.
template <class T>
class Fenced {
 public:
  explicit Fenced(size_t n) : n_(n), all_(n + 64, kFence) {}
  T* data() { return all_.data(); }
  void check(const char* who) const {
    const auto fence = all_.begin() + static_cast<ptrdiff_t>(n_);
    if (!std::all_of(fence, all_.end(), [](T v) { return v == kFence; })) {
      fail_check(std::string(who) + " writes more than it may");
    }
  }

 private:
  static constexpr T kFence = 0x5a;
  size_t n_;
  std::vector<T> all_;
};

void sampler(const Instance& i, const ParamValues& values) {
  const auto& t = i.table<tenon_sampler>();
  if ((t.in_forms & (TENON_DENSE | TENON_SPARSE)) == 0) fail_check("takes neither dense nor sparse candidates");
  for (int round = 0; round < 2; ++round) {
    Fenced<uint8_t> record(t.param_bytes);
    Reason why;
    if (t.encode(i.self(), values.abi(), record.data(), &why.raw) != TENON_OK) {
      fail_check(std::string("cannot encode its own defaults: ") + why.text);
    }
    record.check("encode");
  }
  if (t.state_bytes(i.self(), 1000) != t.state_bytes(i.self(), 1000)) fail_check("changes its mind about its state");
}

void draft(const Instance& i) {
  const auto& t = i.table<tenon_draft>();
  if ((t.flags & TENON_DRAFT_HOST) == 0) throw Skip("it drafts on a device");
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2};
  for (const uint32_t n : {0U, 1U, 10U}) {
    for (const uint32_t cap : {0U, 1U, t.max_tokens(i.self())}) {
      Fenced<int32_t> out(cap);
      uint32_t count = 0;
      Reason why;
      if (t.propose(i.self(), 0, tokens.data(), n, out.data(), cap, &count, &why.raw) != TENON_OK) {
        fail_check("cannot propose after " + std::to_string(n) + " tokens: " + why.text);
      }
      if (count > cap) fail_check("proposes more tokens than there is room for");
      out.check("propose");
    }
  }
  if (t.forget != nullptr) t.forget(i.self(), 0);
}

}  // namespace

void check_kind(const Subject& subject) {
  const Bench bench(subject);
  const ParamValues values = bench.values();
  const Instance i = bench.create(values);
  const std::string_view kind = subject.note.kind;
  if (kind == "attention") return attention(i);
  if (kind == "quantization") return quantization(i);
  if (kind == "kv_cache") return kv_cache(i);
  if (kind == "sampler") return sampler(i, values);
  if (kind == "draft") return draft(i);
  throw Skip("there is none for this kind");
}

}  // namespace tenon
