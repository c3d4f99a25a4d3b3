// A cluster takes a row. The threshold is the key of the last candidate kept, found digit by digit: first the bin by
// distance from the greatest logit, then the bytes of the key. Each pass sums the weights of what still fits by its
// next digit and takes the digit in which the sum reaches p. Sums are of integers: no order, no split changes them.
#include "plugin.h"
#include "tenon/cuda/filter.cuh"
#include "weight.h"

namespace tenon::top_p {
namespace {

using cuda::kClusterThreads, cuda::kClusterWarps;

constexpr uint32_t kDigitBits = 8, kKeyBits = 64, kIdBits = 32;
static_assert(kBins == 1 << kDigitBits && kBins <= kClusterThreads);

struct Shared {
  unsigned long long sum[2][kBins];  // by digit, the more likely first; passes alternate
  unsigned long long scan[kClusterWarps];
  uint32_t most[kClusterWarps + 1], kept[kClusterWarps];
  uint32_t digit;
  uint64_t reached, in_digit;  // the weight is so much before the digit, and in it
};

// This is known of the last candidate kept.
struct Search {
  float greatest;
  uint32_t bin;
  uint32_t shift;   // so many key bits are not known yet
  uint64_t prefix;  // these key bits are known

  __device__ bool fits(float distance, uint64_t key) const {
    return shift > kKeyBits || (bin_of(distance) == bin && (shift == kKeyBits || key >> shift == prefix));
  }
};

// Sums the weights of what fits by the next digit, over the cluster; this thread's digit's.
__device__ uint64_t sum_digits(const cuda::CandidateRow& row, const Search& search, unsigned long long* sum) {
  const auto cluster = cuda::this_cluster();
  cuda::for_each_entry(row, [&](uint32_t i, float logit) {
    if (!(logit > cuda::kOut)) return;
    const float d = distance(logit, search.greatest);
    const uint64_t key = sdk::cpu::candidate_key(logit, row.id_of(i));
    if (!search.fits(d, key)) return;
    const uint64_t weight = units(weight_of(d));
    const uint32_t digit =
        search.shift > kKeyBits ? bin_of(d) : ~static_cast<uint32_t>(key >> (search.shift - kDigitBits)) & (kBins - 1);
    if (weight != 0) atomicAdd(&sum[digit], static_cast<unsigned long long>(weight));
  });
  cluster.sync();
  uint64_t all = 0;
  for (uint32_t r = 0; threadIdx.x < kBins && r < cluster.num_blocks(); ++r) {
    all += cluster.map_shared_rank(sum, r)[threadIdx.x];
  }
  return all;
}

// Returns the least key to keep; `greatest` is finite.
__device__ uint64_t find_threshold(const cuda::CandidateRow& row, float greatest, double p, Shared& s) {
  Search search{greatest, 0, kKeyBits + kDigitBits, 0};
  uint64_t reached = 0;
  double wanted = 0;
  for (uint32_t pass = 0; search.shift > 0; ++pass) {
    unsigned long long* sum = s.sum[pass % 2];
    if (threadIdx.x < kBins) sum[threadIdx.x] = 0;  // nobody reads the sums of two passes ago any more
    __syncthreads();
    const unsigned long long mine = sum_digits(row, search, sum);
    const cuda::Scan<unsigned long long> scan = cuda::block_scan(mine, s.scan);
    if (pass == 0) wanted = max(p * static_cast<double>(scan.all), 1.0);  // the greatest is kept
    const uint64_t before = reached + scan.before;
    if (static_cast<double>(before) < wanted && static_cast<double>(before + mine) >= wanted) {
      s.digit = threadIdx.x;
      s.reached = before;
      s.in_digit = mine;
    }
    __syncthreads();
    reached = s.reached;
    if (pass == 0) {
      search.bin = s.digit;
    } else {
      search.prefix = search.prefix << kDigitBits | (~s.digit & (kBins - 1));
    }
    search.shift -= kDigitBits;
    // The logit is known; if nothing ties with it, so is the candidate.
    if (search.shift == kIdBits &&
        s.in_digit == units(weight_of(distance(sdk::cpu::value_of_key(search.prefix << kIdBits), greatest)))) {
      break;
    }
  }
  return search.prefix << search.shift;
}

__global__ void __launch_bounds__(kClusterThreads, 2)
    keep_kernel(cuda::CandidateInput in, const TopP::Record* records, cuda::Kept kept) {
  __shared__ Shared s;
  cuda::CandidateRow row;
  if (!cuda::open(in, row)) return;
  const double p = records[row.slot].p;
  const float greatest = min(cuda::greatest_of_row(row, s.most), 0x1.fffffep127F);
  const uint64_t threshold = p < 1 && greatest > cuda::kOut ? find_threshold(row, greatest, p, s) : 0;
  cuda::write_kept(in, row, kept, s.kept, [&](float logit, int32_t id) {
    return logit > cuda::kOut && sdk::cpu::candidate_key(logit, id) >= threshold;
  });
  cuda::this_cluster().sync();  // others may still be reading s
}

void keep(const cuda::CandidateGrid& g, const cuda::Launch& l) {
  l(&keep_kernel, cuda::cluster_grid(&keep_kernel, g), cuda::CandidateInput(g, l),
    l.ptr<const TopP::Record>(sdk::cpu::kFilterParams), cuda::Kept(g, l));
}

}  // namespace

void TopP::record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
  const tenon_candidates kept = sdk::cpu::temp_candidates(c, r);
  const sdk::cpu::CandidateOp op = sdk::cpu::filter_op(c, s.params, kept, r);
  cuda::emit<keep>(r, {.name = "keep_probable", .operands = op.operands, .chunks = {}, .cost = op.cost(60, true)},
                   op.grid);
  c = kept;
}

}  // namespace tenon::top_p

TENON_PLUGIN(tenon::top_p::TopP);
