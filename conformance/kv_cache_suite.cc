// Every cache owes this: it is a list of tokens by slot, whatever happens to it. A cache may refuse a setting, a cut or
// a copy, but then it says why. Checks that need every token, or a setting that is refused, count as not tested.
#include <algorithm>

#include "conformance/kv_cache_host.h"
#include "conformance/suites.h"

namespace tenon::conformance {
namespace {

void require_ok(const KvCacheHost& host, tenon_status status, const std::string& what) {
  require(status == TENON_OK, what + " failed: " + host.last_reason());
}
void require_refusal(const KvCacheHost& host, tenon_status status, tenon_status wanted, const std::string& what) {
  require(status == wanted, "answers " + std::to_string(status) + " to " + what);
  require(!host.last_reason().empty(), "refuses " + what + " and does not say why");
}
void require_step(KvCacheHost& host, const std::vector<KvCacheHost::Append>& appends, std::mt19937_64& random) {
  const std::string fault = host.step(appends, random);
  require(fault.empty(), fault);
}

// Appends some rows to some slots, within the host's bounds.
std::vector<KvCacheHost::Append> random_appends(const KvCacheHost& host, std::mt19937_64& random) {
  std::vector<uint32_t> slots(host.shape().slots);
  for (uint32_t i = 0; i < slots.size(); ++i) slots[i] = i;
  std::shuffle(slots.begin(), slots.end(), random);
  std::vector<KvCacheHost::Append> appends;
  uint32_t room = host.shape().rows;
  for (const uint32_t slot : slots) {
    const uint32_t most = std::min(room, host.shape().capacity - host.length(slot));
    if (appends.size() == host.shape().seqs || most == 0) continue;
    appends.push_back({slot, 1 + static_cast<uint32_t>(random() % most)});
    room -= appends.back().rows;
  }
  return appends;
}

// A cache that keeps some tokens only may need room for them.
KvCacheHost::Shape shape_for(const Subject& subject) {
  if (!subject.has_own(TENON_OWN_TOKENS)) return {};
  return {.seqs = 2, .slots = 2, .capacity = 2048};
}
void must_keep_every_token(const Subject& subject) {
  if (subject.has_own(TENON_OWN_TOKENS)) throw NotTested("it declares that it does not keep every token");
}

void keeps_to_its_operands(const Subject& subject) {
  constexpr int kSteps = 40;
  const std::unique_ptr<Component> cache = subject.open();
  KvCacheHost host(*cache, shape_for(subject));
  std::mt19937_64 random(6);
  for (int i = 0; i < kSteps; ++i) {
    const auto appends = random_appends(host, random);
    if (appends.empty()) return;
    const std::string fault = host.run_step(appends, random);
    require(fault.empty(), fault);
  }
}

// Two sequences grow well beyond what a window keeps.
void keeps_what_it_says(const Subject& subject) {
  if (!subject.has_own(TENON_OWN_TOKENS)) return;  // list_of_tokens asks for more
  const std::unique_ptr<Component> cache = subject.open();
  KvCacheHost::Shape shape = shape_for(subject);
  shape.rows = 96;
  KvCacheHost host(*cache, shape, false);
  std::mt19937_64 random(5);
  while (host.length(0) + 64 <= shape.capacity) require_step(host, {{0, 64}, {1, 1 + host.length(1) % 7}}, random);
}

// A sequence that is cut, copied or carried to another instance holds what its next row sees, or the cache says why it
// cannot. A sequence that ends is always let go.
void cuts_and_copies_what_it_keeps(const Subject& subject) {
  if (!subject.has_own(TENON_OWN_TOKENS)) return;  // list_of_tokens asks for more
  const std::unique_ptr<Component> cache = subject.open(), second = subject.open();
  KvCacheHost::Shape shape = shape_for(subject);
  shape.rows = 96;
  KvCacheHost host(*cache, shape, false), other(*second, shape, false);
  std::mt19937_64 random(11);
  while (host.length(0) + 90 <= shape.capacity * 2 / 3) {
    const std::string fault = host.run_step({{0, 90}}, random);
    require(fault.empty(), fault);
  }
  const auto done = [&](tenon_status status, const std::string& what) {
    if (status != TENON_OK) require_refusal(host, status, TENON_REFUSED, what);
    return status == TENON_OK;
  };
  const uint32_t whole = host.length(0);
  if (done(host.fork(0, 1, whole), "a fork")) require_step(host, {{1, 2}, {0, 1}}, random);
  if (done(host.truncate(0, whole - 3), "a cut by a few tokens")) require_step(host, {{0, 2}}, random);
  if (const auto bytes = host.export_sequence(0); !bytes.empty()) {
    require_ok(other, other.import_sequence(1, host.length(0), bytes, host, 0), "import_sequence");
    require_step(other, {{1, 3}}, random);
  }
  if (done(host.truncate(0, whole / 2), "a cut to the half")) require_step(host, {{0, 1}}, random);
  require_ok(host, host.truncate(1, 0), "truncate to nothing");
  require_step(host, {{1, 5}, {0, 1}}, random);
}

// Layers have a window as their own mask: whatever a cache leaves out of them, a row finds what its window lets it see.
// The rows of the last step may be taken back, as drafts are; more of them too, or the cache says why it cannot.
void keeps_what_windows_of_layers_see(const Subject& subject) {
  must_keep_every_token(subject);
  const std::unique_ptr<Component> cache = subject.open();
  KvCacheHost host(*cache, {.rows = 12, .seqs = 2, .slots = 2, .capacity = 300, .window = 40});
  const uint32_t slots = host.shape().slots;
  std::mt19937_64 random(17);
  std::vector<uint32_t> newest(slots, 0);  // the slot's last step appended so many rows
  const auto cuts = [&](uint32_t slot, uint32_t kv_len) {
    const tenon_status status = host.truncate(slot, kv_len);
    if (status == TENON_OK) newest[slot] = 0;
    return status;
  };
  for (int i = 0; i < 150; ++i) {
    const auto slot = static_cast<uint32_t>(random() % slots), other = static_cast<uint32_t>(random() % slots);
    const uint32_t length = host.length(slot);
    if (length + 12 > host.shape().capacity) require_ok(host, cuts(slot, 0), "truncate to nothing");
    switch (random() % 8) {
      case 0:
        require_ok(host, cuts(slot, host.length(slot) - static_cast<uint32_t>(random() % (newest[slot] + 1))),
                   "taking back rows of the last step");
        break;
      case 1:
        if (const tenon_status status = cuts(slot, static_cast<uint32_t>(random() % (host.length(slot) + 1)));
            status != TENON_OK) {
          require_refusal(host, status, TENON_REFUSED, "a cut");
        }
        break;
      case 2:
        require_ok(host, host.fork(slot, other, host.length(slot)), "fork");
        newest[other] = 0;
        break;
      case 3:
        if (const auto bytes = host.export_sequence(slot); !bytes.empty()) {
          require_ok(host, host.import_sequence(other, host.length(slot), bytes, host, slot), "import_sequence");
          newest[other] = 0;
        }
        break;
      default:
        break;
    }
    const auto appends = random_appends(host, random);
    if (appends.empty()) continue;
    require_step(host, appends, random);
    for (const auto& a : appends) newest[a.slot] = a.rows;
  }
}

void is_a_list_of_tokens(const Subject& subject) {
  must_keep_every_token(subject);
  const std::unique_ptr<Component> cache = subject.open();
  KvCacheHost host(*cache, {});
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) {
    const auto slot = static_cast<uint32_t>(random() % host.shape().slots);
    const auto other = static_cast<uint32_t>(random() % host.shape().slots);
    const auto part = static_cast<uint32_t>(random() % (host.length(slot) + 1));
    switch (random() % 4) {
      case 0:
        require_ok(host, host.fork(slot, other, part), "fork");
        break;
      case 1:
        require_ok(host, host.truncate(slot, part), "truncate");
        break;
      case 2: {
        const auto bytes = host.export_sequence(slot);
        require(!bytes.empty(), "exports nothing");
        require_ok(host, host.import_sequence(other, host.length(slot), bytes, host, slot), "import_sequence");
        break;
      }
      default:
        break;
    }
    const auto appends = random_appends(host, random);
    if (!appends.empty()) require_step(host, appends, random);
  }
}

// A cache that does not keep every token may not have what an export needs.
std::vector<std::byte> exported(const KvCacheHost& host, uint32_t slot) {
  auto bytes = host.export_sequence(slot);
  if (bytes.empty() && !host.keeps_every_token()) throw NotTested("it does not export sequences");
  require(!bytes.empty(), "exports nothing");
  return bytes;
}

void moves_sequences(const Subject& subject) {
  const std::unique_ptr<Component> cache = subject.open(), second = subject.open();
  const bool all = !subject.has_own(TENON_OWN_TOKENS);
  KvCacheHost::Shape shape = shape_for(subject);
  KvCacheHost host(*cache, shape, all);
  shape.rows = 3;
  shape.seqs = 2;
  shape.slots = 2;
  shape.capacity += 27;
  KvCacheHost other(*second, shape, all);
  std::mt19937_64 random(8);
  require_step(host, {{0, 2}, {1, 9}}, random);
  const auto bytes = exported(host, 1);
  require_ok(other, other.import_sequence(1, 9, bytes, host, 1), "import_sequence of another instance's export");
  require(other.export_sequence(1) == bytes, "an imported sequence is exported as other bytes");
  require_step(other, {{1, 2}, {0, 1}}, random);
}

// Returns another value of a text parameter that has a list of them; "" if there is none.
std::string another(const Subject& subject, const std::string& parameter) {
  const tenon_param_schema& schema = *subject.loaded().schema;
  const size_t i = find_param(schema, parameter);
  if (i == schema.count) return "";
  for (const std::string& choice : choices_of(spec_at(schema, i))) {
    if (choice != subject.text(parameter)) return choice;
  }
  return "";
}

void refuses_sequences_that_do_not_fit(const Subject& subject) {
  const bool all = !subject.has_own(TENON_OWN_TOKENS);
  const std::unique_ptr<Component> cache = subject.open();
  KvCacheHost host(*cache, shape_for(subject), all);
  std::mt19937_64 random(9);
  require_step(host, {{0, 5}}, random);
  auto bytes = exported(host, 0);
  const auto refuses = [&](uint32_t kv_len, const std::vector<std::byte>& what, const char* name) {
    require_refusal(host, host.import_sequence(1, kv_len, what, host, 0), TENON_REFUSED, name);
  };
  refuses(4, bytes, "a sequence of another length");
  auto cut = bytes;
  cut.pop_back();
  refuses(5, cut, "a sequence without its last byte");
  refuses(5, {}, "a sequence of no bytes");
  bytes[0] ^= std::byte{1};
  refuses(5, bytes, "a sequence that nobody exported");
  const std::string format = another(subject, "format");
  if (format.empty()) return;
  const std::unique_ptr<Component> second = subject.open({{"format", format}});
  KvCacheHost other(*second, shape_for(subject), all);
  require_refusal(other, other.import_sequence(1, 5, host.export_sequence(0), host, 0), TENON_REFUSED,
                  "a sequence in another format");
}

// Sequences have texts that part at different places: what a slot adopts is what its tokens say, whoever else holds it,
// is cut back, writes on or ends. When all have ended, all pages are free. Where layers have a window, texts are longer
// than it, and what is found is what that window still has.
class Beginnings {
 public:
  Beginnings(const Component& cache, uint32_t page, uint32_t window)
      : host_(
            cache,
            {.rows = page + 7, .seqs = 2, .slots = 5, .capacity = (window == 0 ? 3 : 9) * page + 5, .window = window}),
        text_of_(5, 0) {
    std::vector<int32_t> all(host_.shape().capacity);
    for (int32_t& token : all) token = static_cast<int32_t>(random_() % 3);
    for (const uint32_t parts_at :
         {host_.shape().capacity, page + 3, 2 * page, 3 * page + 1, 4 * page, 5 * page, 6 * page, 7 * page}) {
      texts_.push_back(all);
      for (size_t i = parts_at; i < all.size(); ++i) texts_.back()[i] = 3 + static_cast<int32_t>(random_() % 3);
    }
  }

  void step() {
    const auto slot = static_cast<uint32_t>(random_() % host_.shape().slots);
    const uint32_t length = host_.length(slot);
    const auto part = static_cast<uint32_t>(random_() % (length + 1));
    switch (random_() % 5) {
      case 0:
        begin(slot);
        break;
      case 1:
        fork(slot, static_cast<uint32_t>(random_() % host_.shape().slots), part);
        break;
      case 2:
        cut(slot, part);
        break;
      default:
        share(slot, random_() % 16 == 0 ? 0 : host_.shape().window == 0 ? part : length);
        break;
    }
    append();
  }
  void end() {
    for (uint32_t slot = 0; slot < host_.shape().slots; ++slot) {
      require_ok(host_, host_.truncate(slot, 0), "truncate to nothing");
    }
  }
  KvCacheHost& host() { return host_; }

 private:
  std::span<const int32_t> text(uint32_t slot, uint32_t n) const { return std::span(texts_[text_of_[slot]]).first(n); }

  void begin(uint32_t slot) {
    require_ok(host_, host_.truncate(slot, 0), "truncate to nothing");
    text_of_[slot] = random_() % texts_.size();
    const auto wanted = text(slot, static_cast<uint32_t>(random_() % host_.shape().capacity));
    uint32_t held = 0, kv_len = 0;
    const uint32_t found = host_.table().find(host_.self(), wanted.data(), static_cast<uint32_t>(wanted.size()), &held);
    require(held <= found && found <= wanted.size(),
            "finds more tokens than it was asked for, or holds more than that");
    require_ok(host_, host_.adopt(slot, wanted, kv_len), "adopt");
    require(kv_len == found, "adopts " + std::to_string(kv_len) + " tokens and found " + std::to_string(found));
  }
  // A window may have lost what a shorter sequence sees.
  bool done(tenon_status status, const std::string& what) const {
    if (host_.shape().window == 0 || status == TENON_OK) require_ok(host_, status, what);
    if (status != TENON_OK) require_refusal(host_, status, TENON_REFUSED, what);
    return status == TENON_OK;
  }
  void fork(uint32_t from, uint32_t to, uint32_t part) {
    if (done(host_.fork(from, to, part), "a fork")) text_of_[to] = text_of_[from];
  }
  // It goes on with another text, if that has the same beginning.
  void cut(uint32_t slot, uint32_t part) {
    if (!done(host_.truncate(slot, part), "a cut")) return;
    const std::span<const int32_t> before = text(slot, part);
    const size_t other = random_() % texts_.size();
    if (std::equal(before.begin(), before.end(), texts_[other].begin())) text_of_[slot] = other;
  }
  void share(uint32_t slot, uint32_t n) {
    Reason why;
    why.check(host_.table().share(host_.self(), slot, text(slot, n).data(), n, &why.raw), "does not share");
  }
  void append() {
    auto appends = random_appends(host_, random_);
    for (auto& a : appends) a.text = texts_[text_of_[a.slot]];
    if (!appends.empty()) require_step(host_, appends, random_);
  }

  std::mt19937_64 random_{13};
  KvCacheHost host_;
  std::vector<std::vector<int32_t>> texts_;
  std::vector<size_t> text_of_;  // by slot
};

void finds_beginnings_again(const Subject& subject) {
  const std::unique_ptr<Component> first = subject.open();
  const KvCacheHost probe(*first, shape_for(subject));
  const tenon_kv_cache& t = probe.table();
  if (t.find == nullptr && t.adopt == nullptr && t.share == nullptr) return;
  require(t.find != nullptr && t.adopt != nullptr && t.share != nullptr,
          "has one of find, adopt and share, but not all");
  require(t.free_pages != nullptr, "finds pages again and does not tell how many are free");
  uint32_t page = 0, size = 0;
  t.free_pages(probe.self(), &page);
  for (const uint32_t window : {0U, page}) {
    const std::unique_ptr<Component> cache = subject.open();
    Beginnings beginnings(*cache, page, window);
    const uint32_t free = t.free_pages(beginnings.host().self(), &size);
    // A cache with a window gets texts three times as long, so fewer steps go over as many tokens.
    const uint32_t steps = 20 + (window == 0 ? 2000 : 500) / page;
    for (uint32_t i = 0; i < steps; ++i) beginnings.step();
    beginnings.end();
    const uint32_t after = t.free_pages(beginnings.host().self(), &size);
    require(after == free, "has " + std::to_string(after) + " free pages when nobody is left, and had " +
                               std::to_string(free) + " before anybody came");
  }
}

void says_when_it_is_full(const Subject& subject) {
  const std::unique_ptr<Component> cache = subject.open();
  KvCacheHost host(*cache, shape_for(subject));
  const auto& t = host.table();
  const uint32_t capacity = host.shape().capacity, slots = host.shape().slots;
  Reason why;
  why.check(t.reserve(host.self(), 0, capacity, &why.raw), "does not reserve what it planned");
  const auto full = [&](tenon_status status, const char* what) {
    require(status == TENON_NO_SPACE, std::string("answers ") + std::to_string(status) + " to " + what);
    require(*why.text != '\0', std::string("has no space for ") + what + " and does not say so");
  };
  // An endless cache is never full of tokens.
  const tenon_status longer = t.reserve(host.self(), 0, capacity + 1, &why.raw);
  if ((host.footprint().flags & TENON_FOOTPRINT_ENDLESS) != 0) {
    why.check(longer, "says that it is endless and ends at its capacity");
  } else {
    full(longer, "one token more than it planned");
  }
  full(t.reserve(host.self(), slots, 1, &why.raw), "a slot that does not exist");
  full(t.fork(host.self(), 0, slots + 4, 1, host.device().queue(), &why.raw), "a fork to a slot that does not exist");
}

void refuses_absurd_plans(const Subject& subject) {
  const std::unique_ptr<Component> cache = subject.open();
  auto g = sdk::abi_struct<tenon_kv_geometry>();
  g.heads = g.k_dim = g.v_dim = UINT32_MAX;
  const tenon_kv_geometry* layers[] = {&g};
  const tenon_bounds b = OpRunner::bounds({.kv_len = 1u << 30, .slots = UINT32_MAX});
  auto f = sdk::abi_struct<tenon_footprint>();
  Reason why;
  const tenon_status status = cache->table<tenon_kv_cache>().plan(cache->self(), layers, 1, &b, &f, &why.raw);
  require(status == TENON_NO_SPACE, "plans more bytes than can be counted");
  require(*why.text != '\0', "refuses an absurd plan and does not say why");
}

// A setting other than the defaults may be one that the device has no kernels for: then it
// is refused by name, before anything else.
template <void (*check)(const Subject&)>
void unless_refused(const Subject& subject) {
  if (subject.variant().settings.empty()) return check(subject);
  const std::unique_ptr<Component> cache = subject.open();
  auto g = sdk::abi_struct<tenon_kv_geometry>();
  g.heads = 2;
  g.k_dim = g.v_dim = 64;
  const tenon_bounds b = OpRunner::bounds({.kv_len = 2048});
  auto view = sdk::abi_struct<tenon_kv_view>();
  Reason why;
  const tenon_status status = cache->table<tenon_kv_cache>().claim(cache->self(), &g, &b, &view, &why.raw);
  if (status != TENON_REFUSED) return check(subject);
  require(*why.text != '\0', "refuses a layer and does not say why");
  throw NotTested("the cache refuses that setting: " + std::string(why.text));
}

}  // namespace

std::vector<Check> kv_cache_checks() {
  return {{kBounds, &unless_refused<&keeps_to_its_operands>},
          {"list_of_tokens", &unless_refused<&is_a_list_of_tokens>},
          {"windows_of_layers", &unless_refused<&keeps_what_windows_of_layers_see>},
          {"cells_in_use", &unless_refused<&keeps_what_it_says>},
          {"cut_or_copied", &unless_refused<&cuts_and_copies_what_it_keeps>},
          {"export", &unless_refused<&moves_sequences>},
          {"misfits", &unless_refused<&refuses_sequences_that_do_not_fit>},
          {"full", &unless_refused<&says_when_it_is_full>},
          {"absurd_plans", &unless_refused<&refuses_absurd_plans>},
          {"beginnings", &unless_refused<&finds_beginnings_again>}};
}

}  // namespace tenon::conformance
