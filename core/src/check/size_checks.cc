// These checks hand a component the structs of other hosts of the same ABI. Every struct that may grow comes in three
// sizes: as this host knows it; as an older one does, with the memory after it out of reach; as a newer one does, with
// more bytes that must neither matter nor change. The answers must be the same.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "check/bench.h"
#include "check/checks.h"
#include "check/samples.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

enum class Host { kThis, kOlder, kNewer };

// This holds a struct at the end of what may be touched.
template <class T>
class Sized {
 public:
  // `cut` is how much the oldest host knows, at least what version 1.0 has of what is not zero in `value`.
  Sized(const T& value, Host host, size_t cut = sizeof(T))
      : size_(host == Host::kNewer   ? sizeof(T) + kMore
              : host == Host::kOlder ? cut
                                     : sizeof(T)),
        page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    void* pages = mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw Error(ErrorCode::kIo, "no memory for the check");
    pages_ = static_cast<std::byte*>(pages);
    mprotect(pages_ + page_, page_, PROT_NONE);
    std::memcpy(data(), &value, std::min(size_, sizeof(T)));
    for (size_t i = sizeof(T); i < size_; ++i) data()[i] = kFiller;
    head_ = {static_cast<uint32_t>(size_), 1, static_cast<uint16_t>(host == Host::kNewer ? 1 : 0)};
    std::memcpy(data(), &head_, sizeof(head_));
  }
  ~Sized() { munmap(pages_, 2 * page_); }
  Sized(const Sized&) = delete;
  Sized& operator=(const Sized&) = delete;

  T* get() { return reinterpret_cast<T*>(data()); }
  // Returns the first bytes after the head.
  std::string first(size_t bytes) const {
    return std::string(reinterpret_cast<const char*>(data()) + sizeof(tenon_head), bytes);
  }
  void check(const char* what) const {
    if (std::memcmp(data(), &head_, sizeof(head_)) != 0) fail_check(std::string("changes the head of a ") + what);
    const bool kept =
        std::all_of(data() + std::min(size_, sizeof(T)), data() + size_, [](std::byte b) { return b == kFiller; });
    if (!kept) fail_check(std::string("writes past what it knows of a newer host's ") + what);
  }

 private:
  static constexpr size_t kMore = 64;
  static constexpr std::byte kFiller{0xa5};
  std::byte* data() const { return pages_ + page_ - size_; }

  size_t size_, page_;
  std::byte* pages_ = nullptr;
  tenon_head head_{};
};

// An older host's bounds end before what its 1.0 form has 0 for; its claims before the variant.
constexpr size_t kBoundsCut = offsetof(tenon_bounds, steps_ahead), kClaimCut = offsetof(tenon_claim, variant);
constexpr size_t kClaimed = kClaimCut - sizeof(tenon_head);

struct Inputs {
  explicit Inputs(Host h) : host(h), bounds(some_bounds(), h, kBoundsCut), claim({}, h, kClaimCut), none({}, h) {}
  std::string answer(tenon_status status) const {
    claim.check("tenon_claim");
    return std::to_string(status) + (status == TENON_OK ? claim.first(kClaimed) : "");
  }

  Host host;
  Sized<tenon_bounds> bounds;
  Sized<tenon_claim> claim;
  Sized<tenon_chain> none;
};

std::string attention(const Instance& i, Inputs& in) {
  const auto& t = i.table<tenon_attention>();
  Sized<tenon_attn> layer(some_layer(*in.none.get()), in.host);
  Sized<tenon_kv_format> format({}, in.host);
  const tenon_status preferred = t.preferred_format(i.self(), format.get(), nullptr);
  format.check("tenon_kv_format");
  Sized<tenon_kv_view> view(some_view(*format.get()), in.host);
  const tenon_status claimed = t.claim(i.self(), layer.get(), view.get(), in.bounds.get(), in.claim.get(), nullptr);
  return std::to_string(preferred) + ' ' + in.answer(claimed);
}

std::string quantization(const Instance& i, Inputs& in) {
  const auto& t = i.table<tenon_quantization>();
  const int64_t rows = 32;
  const tenon_stored tensor = {"weight", TENON_F32, 2, {rows, kSomeWidth, 0, 0}};
  const tenon_matrix matrix = {"check", 1, 0, &tensor};
  Sized<tenon_linear> site(some_site(*in.none.get(), rows, &matrix), in.host);
  const tenon_status claimed = t.claim(i.self(), site.get(), in.bounds.get(), in.claim.get(), nullptr);
  std::string answer = in.answer(claimed);
  const tenon_claim* const claims[] = {in.claim.get()};
  void* bound = nullptr;
  if (claimed != TENON_OK || t.bind(i.self(), site.get(), claims, 1, &bound, nullptr) != TENON_OK) return answer;
  Sized<tenon_footprint> footprint({}, in.host);
  answer += std::to_string(t.footprint(i.self(), bound, footprint.get(), nullptr));
  footprint.check("tenon_footprint");
  t.unbind(i.self(), bound);
  return answer + footprint.first(sizeof(tenon_footprint) - sizeof(tenon_head));
}

std::string kv_cache(const Instance& i, Inputs& in) {
  const auto& t = i.table<tenon_kv_cache>();
  Sized<tenon_kv_geometry> first(some_geometry(0), in.host), second(some_geometry(1), in.host);
  const tenon_kv_geometry* const layers[] = {first.get(), second.get()};
  Sized<tenon_kv_view> view({}, in.host);
  const std::string answer = std::to_string(t.claim(i.self(), first.get(), in.bounds.get(), view.get(), nullptr)) + ' ';
  view.check("tenon_kv_view");
  Sized<tenon_footprint> footprint({}, in.host);
  const tenon_status planned = t.plan(i.self(), layers, 2, in.bounds.get(), footprint.get(), nullptr);
  footprint.check("tenon_footprint");
  return answer + std::to_string(planned) + footprint.first(sizeof(tenon_footprint) - sizeof(tenon_head));
}

std::string sampler(const Instance& i, Host host, const ParamValues& values) {
  const auto& t = i.table<tenon_sampler>();
  Sized<tenon_params> request(*values.abi(), host);
  std::vector<uint64_t> record(t.param_bytes / sizeof(uint64_t) + 1);
  return std::to_string(t.encode(i.self(), request.get(), record.data(), nullptr));
}

std::string op(const Instance& i, Host host) {
  const auto& t = i.table<tenon_small_op>();
  Sized<tenon_fop> op(some_op(t.id), host);
  int64_t columns = 0;
  const tenon_status status = t.columns(i.self(), op.get(), kSomeColumns, &columns, nullptr);
  return std::to_string(status) + ' ' + std::to_string(columns);
}

std::string scheduler(const Instance& i, Host host) {
  const auto& t = i.table<tenon_scheduler>();
  Sized<tenon_sequence> first(some_sequence(0), host), second(some_sequence(2), host);
  const tenon_sequence* const list[] = {first.get(), second.get()};
  auto plain = sdk::abi_struct<tenon_workload>();
  plain.n = 2;
  plain.rows = 4;
  plain.sequence = list;
  plain.free_slots = t.sequences(i.self()) - 1;
  Sized<tenon_workload> workload(plain, host);
  tenon_share share[2] = {};
  uint32_t preempted[2] = {}, victim = 0;
  auto empty = sdk::abi_struct<tenon_schedule>();
  empty.share = share;
  empty.preempted = preempted;
  Sized<tenon_schedule> schedule(empty, host);
  std::string answer = std::to_string(t.next(i.self(), workload.get(), schedule.get(), nullptr));
  schedule.check("tenon_schedule");
  const uint32_t shares = std::min(schedule.get()->n_shares, 2U), outs = std::min(schedule.get()->n_preempted, 2U);
  for (uint32_t s = 0; s < shares; ++s) {
    answer += ' ' + std::to_string(share[s].sequence) + ':' + std::to_string(share[s].rows);
  }
  for (uint32_t s = 0; s < outs; ++s) answer += " -" + std::to_string(preempted[s]);
  answer += ' ' + std::to_string(t.no_space(i.self(), workload.get(), 0, &victim, nullptr));
  return answer + ' ' + std::to_string(victim);
}

std::string answers(const Bench& bench, std::string_view kind, Host host) {
  const ParamValues values = bench.values();
  Sized<tenon_params> params(*values.abi(), host);
  Sized<tenon_host> services(*bench.env().host, host);
  Sized<tenon_device> device(*bench.env().device, host);
  tenon_env plain = bench.env();
  plain.host = services.get();
  plain.device = device.get();
  Sized<tenon_env> env(plain, host);
  const Instance i = bench.create(*params.get(), *env.get());
  Inputs inputs(host);
  if (kind == "attention") return attention(i, inputs);
  if (kind == "quantization") return quantization(i, inputs);
  if (kind == "kv_cache") return kv_cache(i, inputs);
  if (kind == "sampler") return sampler(i, host, values);
  if (kind == "op") return op(i, host);
  if (kind == "scheduler") return scheduler(i, host);
  if (kind == "draft") return std::to_string(i.table<tenon_draft>().max_tokens(i.self()));
  throw NotTested("there is none for this kind");
}

}  // namespace

void check_struct_sizes(const Subject& subject) {
  const Bench bench(subject);
  const std::string here = answers(bench, subject.note.kind, Host::kThis);
  for (const auto& [host, name] : {std::pair{Host::kNewer, "a newer"}, {Host::kOlder, "an older"}}) {
    std::string there;
    try {
      there = answers(bench, subject.note.kind, host);
    } catch (const Error& e) {
      fail_check(std::string("with the structs of ") + name + " host: " + e.diagnostics().front().message);
    }
    if (there != here) fail_check(std::string("answers otherwise to the structs of ") + name + " host");
  }
}

}  // namespace tenon
