// A scheme that writes files is asked to encode a matrix, and must read from its own tensors what it said it would.
// Factors of columns, observation of rows, and ties between matrices are checked with the schemes that have them.
#include "conformance/quantization_writing.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "conformance/quantization_host.h"
#include "tenon/sdk/stored.h"

namespace tenon::conformance {
namespace {

// A matrix with factors in its columns may be off so much, relative: one that has lost the factors of wide_factors(),
// or has them twice, is off by 0.63 or more.
constexpr double kFactored = 0.6;
constexpr int64_t kRows = 96;

// encode() is given these beside the weights.
struct Given {
  const void* observed = nullptr;
  const float* factor = nullptr;
};

// This is a scheme that writes a matrix of floats and reads it again.
class Writing {
 public:
  // Throws NotTested for a scheme that writes no files.
  explicit Writing(const Subject& subject)
      : subject_(subject), scheme_(subject.open()), floats_{.source = {TENON_F32}, .rows = {kRows}, .k = kWidth} {
    if (table().describe == nullptr) throw NotTested("it writes no files");
    char text[256] = "";
    tenon_reason why{text, sizeof(text)};
    // A form may have no embeddings.
    const LinearDescription embedding(floats_);
    floats_.lookup = table().describe(scheme_->self(), &embedding.linear, &how_, &why) != TENON_REFUSED;
    plain_ = std::make_unique<LinearDescription>(floats_);
    if (table().describe(scheme_->self(), &plain_->linear, &how_, &why) != TENON_OK) fail(text);
  }

  const tenon_quantization& table() const { return scheme_->table<tenon_quantization>(); }
  const Component& scheme() const { return *scheme_; }
  const tenon_linear& linear() const { return plain_->linear; }
  FileMatrix floats(std::mt19937& random) const { return floats_.matrix(0, random); }

  // Says whether x has to be observed before a matrix can be written.
  bool wants_text() const {
    if (table().observed_bytes == nullptr || table().observed_bytes(scheme_->self(), &linear()) == 0) return false;
    std::mt19937 random(1);
    try {
      written({}, floats(random));
    } catch (const Error&) {
      return true;
    }
    return false;
  }

  // Returns how far the matrix that is held differs from what encode() was given, relative.
  double error(const Given& given) const {
    SiteCase c = floats_;
    c.description = how_.description == nullptr ? "" : how_.description;
    c.stored = [&](const FileShape&, std::mt19937& random) { return written(given, floats(random)); };
    QuantizedSite site(subject_.open(), c);
    site.learn();
    Difference d;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < kWidth; ++i) d.add(site.weight(0, row, i), site.source(0, row, i));
    }
    return d.relative();
  }

 private:
  // Returns the matrix as the scheme writes it, in pieces of 7 rows if it takes pieces.
  FileMatrix written(const Given& given, FileMatrix floats) const {
    FileMatrix out;
    out.weights = std::move(floats.weights);
    for (size_t i = 0; given.factor != nullptr && i < out.weights.size(); ++i)
      out.weights[i] *= given.factor[i % kWidth];
    std::vector<uint64_t> row_bytes;
    for (uint32_t i = 0; i < how_.n_tensors; ++i) {
      out.tensors.push_back({how_.tensor[i], std::vector<uint8_t>(sdk::stored_bytes(how_.tensor[i]))});
      row_bytes.push_back(sdk::row_bytes(how_.tensor[i], kRows));
    }
    constexpr auto kAll = static_cast<uint64_t>(kRows);
    for (uint64_t row = 0, n = 0; row < kAll; row += n) {
      n = how_.whole != 0 ? kAll : std::min<uint64_t>(7, kAll - row);
      std::vector<void*> to;
      for (size_t i = 0; i < out.tensors.size(); ++i) to.push_back(out.tensors[i].bytes.data() + row * row_bytes[i]);
      auto e = sdk::abi_struct<tenon_encode>();
      e.row0 = row;
      e.rows = n;
      e.data = out.weights.data() + row * static_cast<uint64_t>(kWidth);
      e.observed = given.observed;
      e.factor = given.factor;
      e.out = to.data();
      char text[256] = "";
      tenon_reason why{text, sizeof(text)};
      if (table().encode(scheme_->self(), &linear(), &e, &why) != TENON_OK) fail(text);
    }
    std::sort(out.tensors.begin(), out.tensors.end(),
              [](const auto& a, const auto& b) { return std::string_view(a.stored.name) < b.stored.name; });
    return out;
  }

  const Subject& subject_;
  std::unique_ptr<Component> scheme_;
  SiteCase floats_;
  std::unique_ptr<LinearDescription> plain_;
  tenon_written how_ = sdk::abi_struct<tenon_written>();
};

// Returns what the scheme adds up over rows of x, of which every sixteenth column is large.
std::vector<uint8_t> observed(const Writing& w) {
  constexpr uint32_t kSeen = 40;
  const uint64_t bytes = w.table().observed_bytes(w.scheme().self(), &w.linear());
  if (bytes == 0) throw NotTested("it need not see x");
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(size_t{kSeen} * kWidth);
  for (size_t i = 0; i < x.size(); ++i) x[i] = normal(random) * (i % 16 == 0 ? 30.0F : 1.0F);
  OpRunner host(OpRunner::bounds({.rows = kSeen}), w.scheme().device());
  auto call = sdk::abi_struct<tenon_observe_call>();
  call.x = host.input(TENON_F32, {int64_t{kSeen}, kWidth}, x);
  call.state = host.store(bytes);
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (w.table().observe(w.scheme().self(), &w.linear(), &call, host.recorder(), &why) != TENON_OK) fail(text);
  require(host.error().empty(), host.error());
  const std::string problem = host.run(1);
  require(problem.empty(), problem);
  return host.read<uint8_t>(call.state);
}

// Pairs of the first columns are tied.
std::vector<uint32_t> ties() {
  std::vector<uint32_t> tied(kWidth);
  for (uint32_t i = 0; i < tied.size(); ++i) tied[i] = i < tied.size() / 2 ? i / 2 * 2 : i;
  return tied;
}

// If there are several states, as many experts have this matrix.
std::vector<float> factors(const Writing& w, const std::vector<const void*>& states) {
  std::mt19937 random(1);
  const FileMatrix matrix = w.floats(random);
  const std::vector<const float*> data(states.size(), matrix.weights.data());
  const std::vector<tenon_matrix> matrices(states.size(), *w.linear().matrix);
  tenon_linear linear = w.linear();
  if (states.size() > 1) linear.experts = static_cast<uint32_t>(states.size());
  linear.matrix = matrices.data();
  const std::vector<uint32_t> tied = ties();
  std::vector<float> factor(kWidth, 1);
  auto asked = sdk::abi_struct<tenon_column_factors>();
  asked.data = data.data();
  asked.observed = states.data();
  asked.tied = tied.data();
  asked.factor = factor.data();
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (w.table().column_factors(w.scheme().self(), &linear, &asked, &why) != TENON_OK) fail(text);
  return factor;
}

// Returns factors from a quarter to four.
std::vector<float> wide_factors() {
  std::vector<float> factor;
  for (int64_t i = 0; i < kWidth; ++i) factor.push_back(std::exp2(static_cast<float>(i * 7 % 17) / 4 - 2));
  return factor;
}

void require_sound(const std::vector<float>& factor) {
  const std::vector<uint32_t> tied = ties();
  for (size_t i = 0; i < factor.size(); ++i) {
    const std::string column = "column " + std::to_string(i) + " gets the factor " + std::to_string(factor[i]);
    require(std::isfinite(factor[i]) && factor[i] > 0, column + "; expected a finite number above 0");
    require(factor[i] == factor[tied[i]], column + ", and column " + std::to_string(tied[i]) +
                                              ", which is tied to it, " + std::to_string(factor[tied[i]]));
  }
}

}  // namespace

void reads_what_it_writes(const Subject& subject) {
  const Writing w(subject);
  std::vector<uint8_t> state;
  if (w.wants_text()) state = observed(w);
  const double error = w.error({.observed = state.empty() ? nullptr : state.data()});
  require(error <= kHeld, "a matrix that it wrote and loaded is off by " + std::to_string(error) + " relative");
}

void takes_factors(const Subject& subject) {
  const Writing w(subject);
  if (w.table().column_factors == nullptr) throw NotTested("it asks for no factors");
  require(w.table().observed_bytes != nullptr && w.table().observe != nullptr,
          "it has column_factors() without observed_bytes() and observe(): no host asks it for factors");
  const std::vector<uint8_t> state = observed(w);
  const std::vector<float> own = factors(w, {state.data()});
  require_sound(own);
  require_sound(factors(w, {nullptr, state.data()}));  // no row came to the first expert
  require(factors(w, {state.data()}) == own, "factors of the same matrix and the same x differ from call to call");
  const double bound = std::min(kFactored, 4 * w.error({.observed = state.data()}) + 0.01);
  for (const std::vector<float>& factor : {own, wide_factors()}) {
    const double error = w.error({state.data(), factor.data()});
    require(error <= bound, "a matrix with factors in its columns is off by " + std::to_string(error) +
                                " relative to what it was given; expected at most " + std::to_string(bound));
  }
}

}  // namespace tenon::conformance
