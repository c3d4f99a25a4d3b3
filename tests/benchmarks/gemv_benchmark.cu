// This times products of one to 256 rows with packed weights on a GPU: the four of each layer of Llama-2-7B as one
// graph with programmatic dependent launch, all layers' weights lying apart, and each shape by itself. Beside them it
// measures the memory's own speed by a kernel that only reads.
//
//   gemv_benchmark [--format bf16|int8|int4|all] [--stages N] [--tiles 1|2]
//                  [--chunk 1|2] [--grid N] [--rows N] [--layers N] [--plain] [--unpaired] [--halves]
//     --stages  at most so many stages in a warp's ring      --tiles  tiles that a warp multiplies a chunk of x by
//     --chunk   size of a chunk in KB                        --grid   blocks, in percent of the multiprocessors
//     --plain   without programmatic dependent launch        --sweep  int4, int8 and bf16 over stages, tiles and chunks
//     --unpaired  5 to 16 rows by matvec.cuh, as one half a value      --halves  a single row as halves, not as digits
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "tenon/cuda/grouped_formats.cuh"
#include "tenon/cuda/matvec.cuh"
#include "tenon/cuda/tile_gemm.cuh"

namespace {

using namespace tenon::cuda;

struct Options {
  std::string format = "all";
  uint32_t stages = 8, tiles = 2, chunk = 1, grid = 100, rows = 1, layers = 32;
  bool plain = false, sweep = false, unpaired = false, halves = false;
};

// Makes bits as random as weights', since what memory costs in power depends on them. NaNs cost no time.
__global__ void fill_kernel(uint4* to, size_t count) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    uint64_t word = (i + 1) * 0x9e3779b97f4a7c15;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    const uint64_t other = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    to[i] = {static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(other),
             static_cast<uint32_t>(other >> 32)};
  }
}

// This hands out random memory piece by piece.
class Arena {
 public:
  explicit Arena(size_t bytes) : bytes_(bytes) {
    TENON_CUDA_CHECK(cudaMalloc(&memory_, bytes));
    fill_kernel<<<1024, 512>>>(reinterpret_cast<uint4*>(memory_), bytes / 16);
    TENON_CUDA_CHECK(cudaDeviceSynchronize());
  }
  ~Arena() { cudaFree(memory_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  uint8_t* take(size_t bytes) {
    uint8_t* p = memory_ + used_;
    used_ += (bytes + 255) / 256 * 256;
    if (used_ > bytes_) throw std::runtime_error("the benchmark's arena is too small");
    return p;
  }
  void reset() { used_ = 0; }
  uint8_t* memory() const { return memory_; }

 private:
  uint8_t* memory_ = nullptr;
  size_t bytes_, used_ = 0;
};

__global__ void __launch_bounds__(512) read_kernel(const uint4* from, size_t count, uint32_t* sink) {
  constexpr uint32_t kUnroll = 8;
  uint32_t sum = 0;
  const size_t stride = size_t{gridDim.x} * blockDim.x * kUnroll;
  for (size_t i = (size_t{blockIdx.x} * kUnroll) * blockDim.x + threadIdx.x; i < count; i += stride) {
    uint4 v[kUnroll];
#pragma unroll
    for (uint32_t u = 0; u < kUnroll; ++u) {
      const size_t at = i + u * blockDim.x;
      v[u] = at < count ? __ldcs(from + at) : uint4{};
    }
#pragma unroll
    for (const uint4& w : v) sum ^= w.x ^ w.y ^ w.z ^ w.w;
  }
  if (sum == 0x12345678) *sink = sum;
}

// This has the least and the median of some repeats of what `enqueue` puts on the stream, as a graph.
struct Time {
  double least, median;
};
template <class Enqueue>
Time time_graph(cudaStream_t stream, int repeats, const Enqueue& enqueue) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  enqueue();  // attributes are set outside the capture
  TENON_CUDA_CHECK(cudaStreamSynchronize(stream));
  TENON_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  enqueue();
  TENON_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  TENON_CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t begin = nullptr, end = nullptr;
  TENON_CUDA_CHECK(cudaEventCreate(&begin));
  TENON_CUDA_CHECK(cudaEventCreate(&end));
  std::vector<double> us;
  for (int i = 0; i < repeats + 2; ++i) {
    TENON_CUDA_CHECK(cudaEventRecord(begin, stream));
    TENON_CUDA_CHECK(cudaGraphLaunch(exec, stream));
    TENON_CUDA_CHECK(cudaEventRecord(end, stream));
    TENON_CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    TENON_CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (i > 1) us.push_back(1e3 * double{ms});
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  std::sort(us.begin(), us.end());
  return {us.front(), us[us.size() / 2]};
}

struct Shape {
  const char* name;
  uint32_t n, k;
  bool norm, silu, add;
};
constexpr Shape kLayer[] = {{"qkv     12288 x 4096 ", 12288, 4096, true, false, false},
                            {"o        4096 x 4096 ", 4096, 4096, false, false, true},
                            {"gate_up 22016 x 4096 ", 22016, 4096, true, true, false},
                            {"down     4096 x 11008", 4096, 11008, false, false, true}};
constexpr size_t kMostColumns = 22016;

struct Bench {
  Options options;
  cudaStream_t stream = nullptr;
  Arena* arena = nullptr;
  uint32_t units = 0;
  double stream_gbs = 0;  // read_kernel's speed
};

template <class F, int kTiles>
class Chain {
 public:
  explicit Chain(const Bench& bench) : b_(bench) {
    b_.arena->reset();
    const size_t row = kMostColumns * sizeof(float), rows = b_.options.rows;
    for (float*& x : x_) x = reinterpret_cast<float*>(b_.arena->take(rows * row));
    norm_ = reinterpret_cast<float*>(b_.arena->take(row));
    live_ = reinterpret_cast<uint32_t*>(b_.arena->take(4));
    prepared_ = b_.arena->take(size_t{16} << 20);
    scratch_ = b_.arena->take(size_t{64} << 20);
    zeroed_ = b_.arena->take(2 * kZeroedBytes);
    TENON_CUDA_CHECK(cudaMemset(zeroed_, 0, 2 * kZeroedBytes));
    TENON_CUDA_CHECK(cudaMemcpy(live_, &b_.options.rows, 4, cudaMemcpyHostToDevice));
    for (uint32_t layer = 0; layer < b_.options.layers; ++layer) {
      for (const Shape& s : kLayer) {
        const TileMap map{s.n, s.silu ? 1U : 0U};
        const size_t bytes = size_t{map.tiles()} * segments_of<F>(s.k) * F::kSegmentBytes;
        const size_t scales = F::kRowScales ? size_t{map.tiles()} * kTileRows * 4 : 0;
        weights_.push_back(b_.arena->take(bytes));
        scales_.push_back(scales == 0 ? nullptr : reinterpret_cast<float*>(b_.arena->take(scales)));
        bytes_.push_back(static_cast<double>(bytes + scales));
      }
    }
  }

  void run() const {
    double all = 0;
    for (const double bytes : bytes_) all += bytes;
    const Time t = time_graph(b_.stream, 20, [&] {
      for (size_t i = 0; i < weights_.size(); ++i) enqueue(i);
    });
    print("layers, all products ", t, all, weights_.size());
    for (size_t s = 0; s < std::size(kLayer); ++s) {
      const Time one = time_graph(b_.stream, 10, [&] {
        for (size_t i = s; i < weights_.size(); i += std::size(kLayer)) enqueue(i);
      });
      print(kLayer[s].name, one, bytes_[s] * b_.options.layers, b_.options.layers);
    }
  }
  // Times the chain alone, and prints it on a line.
  void run_short() const {
    double all = 0;
    for (const double bytes : bytes_) all += bytes;
    const Time t = time_graph(b_.stream, 10, [&] {
      for (size_t i = 0; i < weights_.size(); ++i) enqueue(i);
    });
    std::printf("  stages %u  tiles %d  chunk %4u B  grid %3u %%: %8.1f us  %6.0f GB/s  %5.1f %%\n", b_.options.stages,
                kTiles, F::kSegmentBytes, b_.options.grid, t.median, all / t.median / 1e3,
                100 * all / t.median / 1e3 / b_.stream_gbs);
  }

 private:
  void enqueue(size_t i) const {
    const Shape& s = kLayer[i % std::size(kLayer)];
    MatvecArgs a{};
    a.map = {s.n, s.silu ? 1U : 0U};
    a.k = s.k;
    a.rows = b_.options.rows;
    a.blocks = b_.units * b_.options.grid / 100;
    a.stages = b_.options.stages;
    a.silu = s.silu ? 1 : 0;
    a.eps = 1e-5F;
    a.most_block_bytes = kLargeBlockBytes;
    a.x_stride = a.y_stride = a.addend_stride = kMostColumns;
    MatvecPointers p{};
    p.weights = weights_[i];
    p.scales = scales_[i];
    p.live = live_;
    p.prepared = prepared_;
    p.x = x_[i % 3];
    p.y = x_[(i + 1) % 3];
    p.norm = s.norm ? norm_ : nullptr;
    p.addend = s.add ? x_[(i + 2) % 3] : nullptr;
    auto raw = tenon::sdk::abi_struct<tenon_launch>();
    raw.queue = b_.stream;
    raw.flags = b_.options.plain ? 0 : TENON_LAUNCH_OVERLAP;
    raw.scratch = scratch_;
    raw.zeroed = zeroed_ + i % 2 * kZeroedBytes;
    const Launch launch(&raw);
    if constexpr (!std::is_void_v<typename F::Half>) {
      if (a.rows >= kTileGemmSince && !b_.options.unpaired) {
        a.own_panels = TileGemm<F>::has_own_panels(a) ? 1 : 0;
        TileGemm<F>::prepare(a, p, launch);
        return TileGemm<F>::multiply(a, p, BlockSize::kSmall, launch);
      }
    }
    using Product = Matvec<F, kTiles>;
    a.unpaired = b_.options.unpaired ? 1 : 0;
    a.digits = b_.options.halves ? 0 : 1;
    a.prepared = Product::direct_classes(a) == 0 ? 1 : 0;
    if (a.prepared != 0) Product::prepare(a, p, launch);
    Product::multiply(a, p, s.norm ? BlockSize::kSmall : BlockSize::kLarge, launch);
  }
  void print(const char* name, const Time& t, double bytes, size_t ops) const {
    std::printf("  %s: %8.1f us (least %8.1f)  %6.2f us an op  %6.0f GB/s  %5.1f %% of the stream, %5.1f %% of 4650\n",
                name, t.median, t.least, t.median / static_cast<double>(ops), bytes / t.median / 1e3,
                100 * bytes / t.median / 1e3 / b_.stream_gbs, 100 * bytes / t.median / 1e3 / 4650);
  }

  const Bench& b_;
  float *x_[3] = {}, *norm_ = nullptr;
  uint32_t* live_ = nullptr;
  static constexpr size_t kZeroedBytes = 8192;
  uint8_t *prepared_ = nullptr, *scratch_ = nullptr, *zeroed_ = nullptr;
  std::vector<uint8_t*> weights_;
  std::vector<float*> scales_;
  std::vector<double> bytes_;
};

template <class F>
void run_tiles(const Bench& b) {
  const auto run = [&]<int kTiles>() {
    const Chain<F, kTiles> chain(b);
    b.options.sweep ? chain.run_short() : chain.run();
  };
  b.options.tiles == 1 ? run.template operator()<1>() : run.template operator()<2>();
}
void run_format(const Bench& b, const std::string& format) {
  if (!b.options.sweep) {
    std::printf("%s: %u rows, at most %u stages of %u KB, %u tiles, grid %u %%%s\n", format.c_str(), b.options.rows,
                b.options.stages, b.options.chunk, b.options.tiles, b.options.grid,
                b.options.plain ? ", launched plainly" : "");
  }
  const bool large = b.options.chunk == 2;
  if (format == "bf16") large ? run_tiles<HalfFormat<__nv_bfloat16, 2>>(b) : run_tiles<HalfFormat<__nv_bfloat16>>(b);
  if (format == "int8") large ? run_tiles<Int8Format<4>>(b) : run_tiles<Int8Format<2>>(b);
  if (format == "int4") large ? run_tiles<Int4Format<64, 8>>(b) : run_tiles<Int4Format<64, 4>>(b);
}

void sweep(Bench& b) {
  for (const char* format : {"bf16", "int8", "int4"}) {
    if (b.options.format != "all" && b.options.format != format) continue;
    std::printf("%s\n", format);
    for (const uint32_t chunk : {1U, 2U}) {
      for (const uint32_t tiles : {1U, 2U}) {
        for (const uint32_t stages : chunk == 1 ? std::vector<uint32_t>{2, 3, 4, 6} : std::vector<uint32_t>{1, 2, 3}) {
          b.options.chunk = chunk;
          b.options.tiles = tiles;
          b.options.stages = stages;
          run_format(b, format);
        }
      }
    }
  }
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string key = argv[i];
    if (key == "--plain" || key == "--sweep" || key == "--unpaired" || key == "--halves") {
      (key == "--plain" ? o.plain : key == "--sweep" ? o.sweep : key == "--halves" ? o.halves : o.unpaired) = true;
      continue;
    }
    if (i + 1 == argc) throw std::runtime_error(key + " needs a value");
    const char* value = argv[++i];
    const auto number = static_cast<uint32_t>(std::atoi(value));
    if (key == "--format") {
      o.format = value;
    } else if (key == "--stages") {
      o.stages = number;
    } else if (key == "--tiles") {
      o.tiles = number;
    } else if (key == "--chunk") {
      o.chunk = number;
    } else if (key == "--grid") {
      o.grid = number;
    } else if (key == "--rows") {
      o.rows = number;
    } else if (key == "--layers") {
      o.layers = number;
    } else {
      throw std::runtime_error("no option " + key + "; the source's first lines name them");
    }
  }
  return o;
}

int run(int argc, char** argv) {
  Bench b;
  b.options = parse(argc, argv);
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
    std::printf("no GPU\n");
    return 0;
  }
  b.units = static_cast<uint32_t>(properties.multiProcessorCount);
  TENON_CUDA_CHECK(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
  Arena arena(size_t{15} << 30);
  b.arena = &arena;
  constexpr size_t kStreamBytes = size_t{8} << 30;
  const Time read = time_graph(b.stream, 5, [&] {
    read_kernel<<<b.units * 4, 512, 0, b.stream>>>(reinterpret_cast<const uint4*>(arena.memory()), kStreamBytes / 16,
                                                   reinterpret_cast<uint32_t*>(arena.memory()));
  });
  b.stream_gbs = static_cast<double>(kStreamBytes) / read.least / 1e3;
  std::printf("%s, %u multiprocessors; read-only stream of 8 GiB: %.0f GB/s\n", properties.name, b.units, b.stream_gbs);
  if (b.options.sweep) {
    sweep(b);
    return 0;
  }
  for (const char* format : {"bf16", "int8", "int4"}) {
    if (b.options.format == "all" || b.options.format == format) run_format(b, format);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
