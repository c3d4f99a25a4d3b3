// The component decides first, then the op, then the name, by the first of a list of words that occurs in it. So traces
// of other programs, such as PyTorch's, are sorted as well.
#include "model/work.h"

#include <algorithm>
#include <charconv>

namespace tenon::view {
namespace {

constexpr std::array<std::string_view, 3> kNumbered{"layers.", "layer ", "ProfilerStep#"};

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  return out;
}

struct Sign {
  std::string_view part;
  Work work;
};
// Of these parts the first one that occurs decides.
constexpr Sign kOfComponent[] = {
    {"attention.", Work::kAttention}, {"kv_cache.", Work::kKvCache}, {"sampler.", Work::kSampling}};
constexpr Sign kOfName[] = {
    {"memcpy", Work::kCopy},
    {"memset", Work::kCopy},
    {"copy_", Work::kCopy},
    {"flash", Work::kAttention},
    {"fmha", Work::kAttention},
    {"attention", Work::kAttention},
    {"reshape_and_cache", Work::kKvCache},
    {"gemv", Work::kGemv},
    {"gemm", Work::kGemm},
    {"cutlass", Work::kGemm},
    {"addmm", Work::kGemm},
    {"matmul", Work::kGemm},
    {"linear", Work::kGemm},
    {"aten::mm", Work::kGemm},
    {"aten::bmm", Work::kGemm},
    {"product", Work::kGemv},
    {"norm", Work::kNorm},
    {"softmax", Work::kSampling},
    {"topk", Work::kSampling},
    {"top_k", Work::kSampling},
    {"sort", Work::kSampling},
    {"multinomial", Work::kSampling},
    {"sampl", Work::kSampling},
    {"embedding", Work::kEmbedding},
};

template <size_t N>
bool find(const Sign (&signs)[N], const std::string& text, Work& work) {
  for (const Sign& sign : signs) {
    if (text.find(sign.part) == std::string::npos) continue;
    work = sign.work;
    return true;
  }
  return false;
}

}  // namespace

const char* label(Work work) {
  constexpr std::array<const char*, kWorks> kLabels{"GEMV",      "GEMM", "attention", "KV cache", "norm", "sampling",
                                                    "embedding", "copy", "other",     "gap",      "host"};
  return kLabels[static_cast<size_t>(work)];
}

Work work_of(std::string_view component, std::string_view op, std::string_view name) {
  Work work = Work::kOther;
  if (find(kOfComponent, lower(component), work)) return work;
  if (op == "rows") return Work::kEmbedding;
  if (!op.empty() && find(kOfName, lower(op), work)) return work;
  // A path names the module, and the operation only after its last '/'.
  if (!op.empty() && !component.starts_with("quantization.")) return work;
  find(kOfName, lower(name), work);
  return work;
}

std::string without_numbers(std::string_view name) {
  for (const std::string_view head : kNumbered) {
    const size_t at = name.find(head);
    if (at == std::string_view::npos) continue;
    const size_t from = at + head.size();
    const size_t to = std::min(name.find_first_not_of("0123456789", from), name.size());
    if (to == from) continue;
    return std::string(name.substr(0, from)) + '*' + std::string(name.substr(to));
  }
  return std::string(name);
}

int layer_of(std::string_view name) {
  for (const std::string_view head : {kNumbered[0], kNumbered[1]}) {
    const size_t at = name.find(head);
    if (at == std::string_view::npos) continue;
    int layer = -1;
    const char* from = name.data() + at + head.size();
    if (std::from_chars(from, name.data() + name.size(), layer).ec == std::errc() && layer >= 0) return layer;
  }
  return -1;
}

}  // namespace tenon::view
