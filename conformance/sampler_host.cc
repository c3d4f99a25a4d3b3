// This records samplers as a pipeline does, over candidates that are made from a seed.
#include "conformance/sampler_host.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "conformance/suite.h"
#include "tenon/sdk/recorder.h"

namespace tenon::conformance {
namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity();

tenon_bounds bounds_for(const std::vector<StepRow>& rows, uint32_t slots, uint32_t padding) {
  const auto n = static_cast<uint32_t>(rows.size()) + padding;
  return OpRunner::bounds({.rows = n, .seqs = slots, .slots = slots});
}

std::vector<tenon_param_value> values_of(const ParamValues& defaults, const Settings& settings) {
  const tenon_param_schema& schema = defaults.schema();
  std::vector<tenon_param_value> values(defaults.abi()->value, defaults.abi()->value + schema.count);
  for (const auto& [name, value] : settings) {
    tenon_param_value& v = values.at(find_param(schema, name));
    v.integer = static_cast<int64_t>(value.number);
    v.real = value.number;
    v.text = value.text.c_str();
  }
  return values;
}

}  // namespace

std::vector<StepRow> rows_of(const std::vector<Logits>& logits) {
  std::vector<StepRow> rows;
  for (const Logits& l : logits) rows.push_back({.logits = l, .position = static_cast<int32_t>(rows.size())});
  return rows;
}

Logits awkward_logits(uint32_t vocab, uint64_t seed, double deviation) {
  std::mt19937_64 random(seed);
  Logits logits(vocab);
  for (float& l : logits) {
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53 - 0.5;
    l = static_cast<float>(sum * std::sqrt(3.0) * deviation);
    if (random() % 4 == 0) l = std::round(l);
    if (random() % 16 == 0) l = kOut;
    if (vocab > 8 && random() % 16 == 0) l = std::numeric_limits<float>::quiet_NaN();
  }
  return logits;
}

SamplerHost::SamplerHost(uint32_t vocab, const std::vector<StepRow>& rows, uint32_t slots, uint32_t padding,
                         const Device& device)
    : vocab_(vocab),
      slots_(slots),
      runner_(bounds_for(rows, slots, padding), device),
      logits_((rows.size() + padding) * vocab, std::numeric_limits<float>::quiet_NaN()) {
  const size_t n = rows.size() + padding;
  const auto state = [&](uint32_t role) { return runner_.step_i32(role); };
  for (const uint32_t role : {TENON_STEP_TOKEN, TENON_STEP_POS, TENON_STEP_OUT_ROW}) {
    std::fill(state(role).begin(), state(role).end(), -1);
  }
  std::fill(state(TENON_STEP_SLOT).begin(), state(TENON_STEP_SLOT).end(), -1);
  for (size_t i = 0; i < rows.size(); ++i) {
    const StepRow& r = rows[i];
    state(TENON_STEP_TOKEN)[i] = r.token;
    state(TENON_STEP_POS)[i] = r.position;
    state(TENON_STEP_SLOT)[i] = r.slot;
    state(TENON_STEP_PARENT)[i] = r.parent;
    if (r.logits.empty()) continue;
    std::copy(r.logits.begin(), r.logits.end(), logits_.begin() + int64_t{wanted_} * vocab);
    state(TENON_STEP_OUT_ROW)[wanted_++] = static_cast<int32_t>(i);
  }
  runner_.set_live(static_cast<uint32_t>(rows.size()), slots, wanted_);
  dense_ = sdk::abi_struct<tenon_candidates>();
  dense_.form = TENON_DENSE;
  dense_.cap = dense_.vocab = vocab;
  dense_.logits = runner_.input(TENON_F32, {static_cast<int64_t>(n), vocab}, logits_);
}

tenon_candidates SamplerHost::sparse(uint64_t seed) {
  std::mt19937_64 random(seed);
  const size_t n = logits_.size() / vocab_;
  Logits logits(logits_.size(), std::numeric_limits<float>::quiet_NaN());
  std::vector<int32_t> ids(logits_.size(), -1), counts(n, -1);
  for (size_t r = 0; r < wanted_; ++r) {
    std::vector<int32_t> order(vocab_);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    counts[r] = 0;
    for (const int32_t id : order) {
      const float l = logits_[r * vocab_ + static_cast<size_t>(id)];
      if (!(l > kOut)) continue;
      const size_t at = r * vocab_ + static_cast<size_t>(counts[r]++);
      logits[at] = l;
      ids[at] = id;
    }
  }
  tenon_candidates c = dense_;
  c.form = TENON_SPARSE;
  const auto rows = static_cast<int64_t>(n);
  c.logits = runner_.input(TENON_F32, {rows, vocab_}, logits);
  c.id = runner_.input(TENON_I32, {rows, vocab_}, ids);
  c.count = runner_.input(TENON_I32, {rows}, counts);
  return c;
}

tenon_sampling SamplerHost::Entry::sampling(tenon_tid next) const {
  auto s = sdk::abi_struct<tenon_sampling>();
  s.params = params;
  s.state = state;
  s.next = next;
  return s;
}

SamplerHost::Entry SamplerHost::add(const Component& sampler, const std::vector<Settings>& settings) {
  Entry entry{&sampler.table<tenon_sampler>(), sampler.self()};
  const uint32_t bytes = entry.table->param_bytes;
  const ParamValues defaults = example_values(sampler.schema());
  std::vector<uint8_t> records;
  for (uint32_t slot = 0; slot < slots_; ++slot) {
    const std::vector<tenon_param_value> values =
        values_of(defaults, settings[std::min<size_t>(slot, settings.size() - 1)]);
    auto request = sdk::abi_struct<tenon_params>();
    request.count = static_cast<uint32_t>(values.size());
    request.value = values.data();
    std::vector<uint8_t> record(bytes);
    Reason why;
    why.check(entry.table->encode(entry.self, &request, record.data(), &why.raw), "cannot encode a request");
    records.insert(records.end(), record.begin(), record.end());
  }
  records.resize(std::max<size_t>(records.size(), 1));
  entry.params = runner_.input(TENON_U8, {static_cast<int64_t>(records.size())}, records);
  const uint64_t state = entry.table->state_bytes(entry.self, vocab_);
  if (state > 0) {
    const tenon_tensor t = sdk::tensor(TENON_U8, {slots_, static_cast<int64_t>(state)});
    const tenon_recorder& r = *runner_.recorder();
    entry.state = r.keep(r.ctx, &t, ("state " + std::to_string(entry.params)).c_str());
  }
  return entry;
}

tenon_candidates SamplerHost::apply(const Entry& entry, tenon_candidates c) {
  require((entry.table->in_forms & c.form) != 0, "does not take candidates in this form");
  Reason why;
  const tenon_sampling s = entry.sampling(0);
  why.check(entry.table->record_apply(entry.self, &s, &c, runner_.recorder(), &why.raw), "record_apply failed");
  return c;
}

tenon_tid SamplerHost::select(const Entry& entry, const tenon_candidates& c) {
  require((entry.table->in_forms & c.form) != 0, "does not take candidates in this form");
  const tenon_tid next = runner_.recorder()->step(runner_.recorder()->ctx, TENON_STEP_NEXT);
  std::fill(runner_.step_i32(TENON_STEP_NEXT).begin(), runner_.step_i32(TENON_STEP_NEXT).end(), -7);
  Reason why;
  const tenon_sampling s = entry.sampling(next);
  why.check(entry.table->record_select(entry.self, &s, &c, runner_.recorder(), &why.raw), "record_select failed");
  return next;
}

void SamplerHost::accept(const Entry& entry, const tenon_candidates& given) {
  Reason why;
  const tenon_sampling s = entry.sampling(runner_.recorder()->step(runner_.recorder()->ctx, TENON_STEP_NEXT));
  why.check(entry.table->record_accept(entry.self, &s, &given, runner_.recorder(), &why.raw), "record_accept failed");
}

void SamplerHost::run(uint64_t seed) {
  const std::string fault = runner_.run(seed);
  require(fault.empty(), fault);
}

std::vector<Candidates> SamplerHost::candidates(const tenon_candidates& c) const {
  std::vector<Candidates> all(wanted_);
  const size_t width = c.form == TENON_DENSE ? c.vocab : c.cap;
  const auto logits = runner_.read<float>(c.logits);
  const bool dense = c.form == TENON_DENSE;
  const auto ids = dense ? std::vector<int32_t>() : runner_.read<int32_t>(c.id);
  const auto counts = dense ? std::vector<int32_t>() : runner_.read<int32_t>(c.count);
  for (size_t r = 0; r < wanted_; ++r) {
    const size_t n = dense ? width : static_cast<size_t>(counts[r]);
    require(n <= width, "lists " + std::to_string(n) + " candidates where there is room for " + std::to_string(width));
    for (size_t i = 0; i < n; ++i) {
      const float logit = logits[r * width + i];
      const int32_t id = dense ? static_cast<int32_t>(i) : ids[r * width + i];
      if (!dense || logit > kOut) all[r].push_back({id, logit});
    }
  }
  const auto untouched = [](float l) { return std::bit_cast<uint32_t>(l) == UINT32_MAX; };
  require(std::all_of(logits.begin() + static_cast<int64_t>(wanted_ * width), logits.end(), untouched),
          "rows past the wanted ones were written");
  return all;
}

std::vector<int32_t> SamplerHost::tokens(tenon_tid next) const {
  auto all = runner_.read<int32_t>(next);
  all.resize(wanted_);
  return all;
}

}  // namespace tenon::conformance
