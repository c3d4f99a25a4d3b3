// These checks try an interface at its edges: it must say no, with a reason, to what does not exist, and write no more
// than it may. Each kind has a function here. The samples are small (samples.h), and nothing is computed: what a
// component computes is tested by the conformance suites.
#include <algorithm>
#include <set>
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
  const tenon_kv_view view = some_view(format);
  if (t.claim(i.self(), &layer, &view, &bounds, &claim, &why.raw) != TENON_OK) {
    fail_check(std::string("refuses the format that it prefers: ") + why.text);
  }
  format.k.codec = format.v.codec = kNoSuchFormat;
  expect_refusal(t.claim(i.self(), &layer, &view, &bounds, &claim, &why.raw), why,
                 "a cache format that does not exist");
}

void quantization(const Instance& i) {
  const auto& t = i.table<tenon_quantization>();
  const int64_t rows = 32;
  const auto none = sdk::abi_struct<tenon_chain>();
  const tenon_stored tensor = {"weight", kNoSuchFormat, 2, {rows, kSomeWidth, 0, 0}};
  const tenon_matrix matrix = {"check", 1, 0, &tensor};
  const tenon_linear site = some_site(none, rows, &matrix);
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
  const tenon_kv_geometry layer = some_geometry(0), second = some_geometry(1);
  const tenon_kv_geometry* const layers[] = {&layer, &second};
  const tenon_bounds bounds = some_bounds();
  auto footprint = sdk::abi_struct<tenon_footprint>();
  auto view = sdk::abi_struct<tenon_kv_view>();
  Reason why;
  if (t.claim(i.self(), &layer, &bounds, &view, &why.raw) != TENON_OK) {
    fail_check(std::string("cannot hold a small layer: ") + why.text);
  }
  if (view.format == nullptr) fail_check("has no format");
  if (tenon_format_block(view.format->k.codec).bytes == 0) fail_check("keeps keys in a format that does not exist");
  if (t.plan(i.self(), layers, 2, &bounds, &footprint, &why.raw) != TENON_OK) {
    fail_check(std::string("cannot plan two small layers: ") + why.text);
  }
  if (footprint.n_stores > TENON_MAX_STORES) fail_check("plans more stores than there may be");
}

// This buffer shows whether more than its first bytes were written.
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
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2};
  for (const uint32_t n : {0U, 1U, 10U}) {
    for (const uint32_t cap : {0U, 1U, t.max_tokens(i.self())}) {
      Fenced<int32_t> out(cap), parent(cap);
      for (uint32_t p = 0; p < cap; ++p) parent.data()[p] = static_cast<int32_t>(p) - 1;
      uint32_t count = 0;
      Reason why;
      if (t.propose(i.self(), 0, tokens.data(), n, out.data(), parent.data(), cap, &count, &why.raw) != TENON_OK) {
        fail_check("cannot propose after " + std::to_string(n) + " tokens: " + why.text);
      }
      if (count > cap) fail_check("proposes more tokens than there is room for");
      out.check("propose");
      parent.check("propose");
    }
  }
  if (t.forget != nullptr) t.forget(i.self(), 0);
}

void op(const Instance& i) {
  const auto& t = i.table<tenon_small_op>();
  std::set<std::string> names;
  std::set<uint32_t> tensors, integers, numbers;
  for (uint32_t a = 0; a < t.n_args; ++a) {
    const tenon_op_arg& arg = t.arg[a];
    if (arg.name == nullptr || !names.insert(arg.name).second) fail_check("has an argument without a name of its own");
    const std::string name = std::string("argument \"") + arg.name + '"';
    if (arg.kind < TENON_ARG_VECTOR || arg.kind > TENON_ARG_INTEGER) fail_check(name + " is of no kind that there is");
    const bool number = arg.kind == TENON_ARG_NUMBER, integer = arg.kind == TENON_ARG_INTEGER;
    auto& places = number ? numbers : integer ? integers : tensors;
    const size_t room = integer ? std::size(tenon_fop{}.i) : std::size(tenon_fop{}.t);
    if (arg.index >= room || !places.insert(arg.index).second) {
      fail_check(name + " stands where there is no place for it");
    }
  }
  const tenon_fop sample = some_op(t.id);
  int64_t columns = 0;
  Reason why;
  const tenon_status status = t.columns(i.self(), &sample, kSomeColumns, &columns, &why.raw);
  if (status != TENON_OK && *why.text == '\0') fail_check("refuses 64 columns and does not say why");
  if (status == TENON_OK && columns <= 0) fail_check("makes no columns of 64");
  if ((t.flags & TENON_SMALL_OP_IN_PLACE) != 0 && status == TENON_OK && columns != kSomeColumns) {
    fail_check("works in place, but makes " + std::to_string(columns) + " columns of 64");
  }
}

// The edges are one sequence that waits for the only row; a step with room for one of three.
void scheduler(const Instance& i) {
  const auto& t = i.table<tenon_scheduler>();
  const uint32_t sequences = t.sequences(i.self());
  if (sequences == 0) fail_check("runs no sequence at all");
  if (t.sequences(i.self()) != sequences) fail_check("changes its mind about how many sequences run at once");
  const tenon_sequence some[] = {some_sequence(0), some_sequence(1), some_sequence(2)};
  const tenon_sequence* const list[] = {&some[0], &some[1], &some[2]};
  for (const uint32_t first : {2U, 0U}) {
    auto w = sdk::abi_struct<tenon_workload>();
    w.n = first == 2 ? 1 : std::min(3U, sequences + 1);
    w.rows = 1;
    w.sequence = list + first;
    w.free_slots = sequences - std::min(sequences, first == 2 ? 0U : 2U);
    Fenced<uint64_t> share(w.n);
    Fenced<uint32_t> preempted(w.n);
    auto schedule = sdk::abi_struct<tenon_schedule>();
    schedule.share = reinterpret_cast<tenon_share*>(share.data());
    schedule.preempted = preempted.data();
    Reason why;
    if (t.next(i.self(), &w, &schedule, &why.raw) != TENON_OK) {
      fail_check("has no answer for " + std::to_string(w.n) + " sequences: " + why.text);
    }
    share.check("next");
    preempted.check("next");
    if (schedule.n_shares != 1 || schedule.share[0].rows != 1 || schedule.share[0].sequence >= w.n) {
      fail_check("does not give the only row of a step to one of " + std::to_string(w.n) + " sequences");
    }
    uint32_t victim = 0;
    if (t.no_space(i.self(), &w, 0, &victim, &why.raw) != TENON_OK) {
      fail_check(std::string("does not say what to do when the cache is full: ") + why.text);
    }
    if (victim != TENON_NO_SEQUENCE && victim >= w.n) fail_check("pre-empts a sequence that is not there");
  }
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
  if (kind == "op") return op(i);
  if (kind == "scheduler") return scheduler(i);
  throw NotTested("there is none for this kind");
}

}  // namespace tenon
