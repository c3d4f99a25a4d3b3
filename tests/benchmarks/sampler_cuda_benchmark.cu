// This prints the microseconds of each sampler for CUDA and of the usual chain. Each is recorded many times over in a
// captured graph with programmatic dependent launch, and the time divided by as many.
#include <cstdio>
#include <random>

#include "cuda/recorder.h"
#include "cuda/sampler_samplers.h"

namespace tenon::test {
namespace {

constexpr uint32_t kTimes = 32, kRepeats = 21;

// The values have about the spread of a language model's logits.
std::vector<float> logits(uint32_t rows, uint32_t vocab) {
  std::mt19937_64 random(vocab);
  std::normal_distribution<float> normal(0, 2.5F);
  std::vector<float> values(size_t{rows} * vocab);
  for (float& l : values) l = normal(random);
  return values;
}

// `before` is recorded once, `chain` kTimes.
double measure(uint32_t rows, uint32_t vocab, const std::vector<ChainEntry>& before,
               const std::vector<ChainEntry>& chain) {
  CudaRecorder host(CudaRecorder::bounds(rows, rows, 4096, rows));
  auto c = sdk::abi_struct<tenon_candidates>();
  c.form = TENON_DENSE;
  c.cap = c.vocab = vocab;
  c.logits = host.input(TENON_F32, {rows, vocab}, logits(rows, vocab));
  for (uint32_t r = 0; r < rows; ++r) host.step_i32(TENON_STEP_SLOT)[r] = static_cast<int32_t>(r);
  std::vector<std::unique_ptr<KeptEntry>> first, entries;
  for (const ChainEntry& l : before) first.push_back(std::make_unique<KeptEntry>(l, On::kCuda, vocab, rows, host));
  for (const ChainEntry& l : chain) entries.push_back(std::make_unique<KeptEntry>(l, On::kCuda, vocab, rows, host));
  for (const auto& l : first) l->record(c, host.recorder());
  for (uint32_t i = 0; i < kTimes; ++i) {
    tenon_candidates own = c;
    for (const auto& l : entries) l->record(own, host.recorder());
  }
  return host.time_us(CudaRecorder::Mode::kGraph, kRepeats) / kTimes;
}

void measure_all(uint32_t rows, uint32_t vocab) {
  const ChainEntry temperature{"temperature"}, top_k{"top_k"}, top_p{"top_p"}, min_p{"min_p"}, draw{"categorical"};
  const auto show = [&](const char* what, double us) {
    std::printf("%2u x %-7u %-44s %8.2f us\n", rows, vocab, what, us);
  };
  for (const char* name : {"greedy", "categorical", "temperature", "top_k", "top_p", "min_p", "repetition_penalty",
                           "frequency_presence"}) {
    show(name, measure(rows, vocab, {}, {{name}}));
  }
  for (const ChainEntry& l : {top_p, min_p, draw})
    show(("after top_k: " + l.name).c_str(), measure(rows, vocab, {top_k}, {l}));
  show("top_k, k = 0", measure(rows, vocab, {}, {{"top_k", {{{"k", 0}}}}}));
  show("temperature, top_k, categorical", measure(rows, vocab, {}, {temperature, top_k, draw}));
  show("temperature, top_k, top_p, min_p, categorical",
       measure(rows, vocab, {}, {temperature, top_k, top_p, min_p, draw}));
}

}  // namespace
}  // namespace tenon::test

int main() {
  using namespace tenon::test;
  if (const std::string why = cuda_missing(); !why.empty()) {
    std::printf("nothing measured: %s\n", why.c_str());
    return 0;
  }
  for (const uint32_t vocab : {32000U, 128256U}) {
    for (const uint32_t rows : {1U, 16U}) measure_all(rows, vocab);
  }
  return 0;
}
