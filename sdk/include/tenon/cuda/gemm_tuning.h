// This chooses which of cuBLASLt's algorithms runs a product (product.h), and runs it.
// The library tenon::gemm is compiled of it.
//
// The first launch of a shape outside a capture times what cuBLASLt proposes, and the best is kept. It is timed on the
// launch's own memory, but where y is the addend, which every run would add anew, on memory that is taken meanwhile;
// if there is none, the first proposal is taken. What is chosen is known for the life of the process, and later ones
// find it in
//   $XDG_CACHE_HOME (or ~/.cache)/tenon/cublaslt-<GPU>-<version of cuBLASLt>.txt
// one line a shape: the numbers of ProductKey, then the algorithm's eight words in hexadecimal. A file that is not of
// that form, or names what cuBLASLt refuses, is passed over; without a place to write nothing is kept.
// With TENON_TUNING=off in the environment it is always cuBLASLt's first proposal, so that two machines' runs can be equal.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "tenon/cuda/error.h"
#include "tenon/cuda/product.h"

namespace tenon::cuda::detail {

inline void check_lt(cublasStatus_t status, const char* expression) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw sdk::Failed(std::string(expression) + ": " + cublasLtGetStatusString(status));
}
#define TENON_CUBLASLT_CHECK(call) ::tenon::cuda::detail::check_lt((call), #call)

// The choice of an algorithm may depend on these: Product's numbers, the alignment of all pointers, 1 if y is the
// addend.
using ProductKey = std::array<int64_t, 11>;
inline ProductKey product_key(const Product& p, const ProductPointers& at) {
  const uintptr_t bits = reinterpret_cast<uintptr_t>(at.x) | reinterpret_cast<uintptr_t>(at.w) |
                         reinterpret_cast<uintptr_t>(at.y) | reinterpret_cast<uintptr_t>(at.addend);
  int64_t alignment = 256;
  while (bits % static_cast<uintptr_t>(alignment) != 0) alignment /= 2;
  return {p.rows, p.n,   p.k,      p.x_stride, p.y_stride,       p.addend_stride,
          p.in,   p.out, p.biased, alignment,  at.addend == at.y};
}

// The struct has a name, since nvcc's front end fails on containers of cuBLASLt's unnamed struct.
struct Algorithm {
  cublasLtMatmulAlgo_t raw;
};

// This describes a product in cuBLASLt's words: column-major, so y^T = w x^T with w transposed.
class LtProduct {
 public:
  LtProduct(cublasLtHandle_t handle, const Product& p, const ProductPointers& at)
      : handle_(handle), at_(at), integers_(p.integers()), beta_(at.addend != nullptr ? 1.0f : 0.0f) {
    const auto in = static_cast<cudaDataType>(p.in), out = static_cast<cudaDataType>(p.out);
    TENON_CUBLASLT_CHECK(integers_ ? cublasLtMatmulDescInit(&op_, CUBLAS_COMPUTE_32I, CUDA_R_32I)
                                   : cublasLtMatmulDescInit(&op_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (p.biased != 0) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, at.bias);
    }
    // Sums of e4m3 stay in f32 as they are added up: "fast accumulation" would
    // leave them in the tensor cores' fewer bits.
    if (p.scaled()) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, at.w_scales);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, at.x_scales);
    }
    const auto rows = static_cast<uint64_t>(p.rows), n = static_cast<uint64_t>(p.n), k = static_cast<uint64_t>(p.k);
    TENON_CUBLASLT_CHECK(cublasLtMatrixLayoutInit(&w_, in, k, n, p.k));
    TENON_CUBLASLT_CHECK(cublasLtMatrixLayoutInit(&x_, in, k, rows, p.x_stride));
    TENON_CUBLASLT_CHECK(cublasLtMatrixLayoutInit(&y_, out, n, rows, p.y_stride));
    TENON_CUBLASLT_CHECK(
        cublasLtMatrixLayoutInit(&addend_, out, n, rows, at.addend != nullptr ? p.addend_stride : p.y_stride));
  }

  // Returns what cuBLASLt proposes, best guess first; nothing where it cannot multiply this.
  std::vector<Algorithm> proposals(const ProductKey& key) {
    constexpr int kMost = 16;
    cublasLtMatmulPreferenceOpaque_t preference;
    TENON_CUBLASLT_CHECK(cublasLtMatmulPreferenceInit(&preference));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
      TENON_CUBLASLT_CHECK(cublasLtMatmulPreferenceSetAttribute(&preference, what, &value, sizeof(value)));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kGemmWorkspaceBytes);
    // Partial sums stay f32 also where the result is f16.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    const auto alignment = static_cast<uint32_t>(key[9]);
    for (const auto matrix : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(matrix, alignment);
    }
    std::array<cublasLtMatmulHeuristicResult_t, kMost> results{};
    int n = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, &op_, &w_, &x_, &addend_, &y_, &preference, kMost, results.data(), &n);
    std::vector<Algorithm> algorithms;
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < n; ++i) {
      if (results[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS) {
        algorithms.push_back({results[static_cast<size_t>(i)].algo});
      }
    }
    return algorithms;
  }

  bool takes(const Algorithm& algorithm) {
    cublasLtMatmulHeuristicResult_t result{};
    return cublasLtMatmulAlgoCheck(handle_, &op_, &w_, &x_, &addend_, &y_, &algorithm.raw, &result) ==
               CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= kGemmWorkspaceBytes;
  }

  // Weights that a step has not just read come from memory: what a run left in L2 is driven out.
  void forget(cudaStream_t stream) const {
    TENON_CUDA_CHECK(cudaMemsetAsync(at_.workspace, 0, kGemmWorkspaceBytes, stream));
  }

  cublasStatus_t run(const Algorithm& algorithm, cudaStream_t stream) {
    const float one = 1;
    const int32_t whole_one = 1, whole_zero = 0;
    const void* alpha = integers_ ? static_cast<const void*>(&whole_one) : &one;
    const void* beta = integers_ ? static_cast<const void*>(&whole_zero) : &beta_;
    return cublasLtMatmul(handle_, &op_, alpha, at_.w, &w_, at_.x, &x_, beta,
                          at_.addend != nullptr ? static_cast<const void*>(at_.addend) : at_.y, &addend_, at_.y, &y_,
                          &algorithm.raw, at_.workspace, kGemmWorkspaceBytes, stream);
  }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t what, const T& value) {
    TENON_CUBLASLT_CHECK(cublasLtMatmulDescSetAttribute(&op_, what, &value, sizeof(value)));
  }

  cublasLtHandle_t handle_;
  ProductPointers at_;
  bool integers_;
  float beta_;
  cublasLtMatmulDescOpaque_t op_;
  cublasLtMatrixLayoutOpaque_t w_, x_, y_, addend_;
};

// This is memory for as long as it lives; nullptr if there was none.
class TakenMemory {
 public:
  TakenMemory(size_t bytes, cudaStream_t stream) : stream_(stream) {
    if (bytes == 0 || cudaMallocAsync(&memory_, bytes, stream) == cudaSuccess) return;
    memory_ = nullptr;
    (void)cudaGetLastError();
  }
  ~TakenMemory() {
    if (memory_ != nullptr) (void)cudaFreeAsync(memory_, stream_);
  }
  TakenMemory(const TakenMemory&) = delete;
  TakenMemory& operator=(const TakenMemory&) = delete;
  void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
  cudaStream_t stream_;
};

// Returns the median of a few runs; infinite if the algorithm does not run.
inline float median_ms(LtProduct& product, const Algorithm& algorithm, cudaStream_t stream) {
  if (product.run(algorithm, stream) != CUBLAS_STATUS_SUCCESS) return std::numeric_limits<float>::infinity();
  std::array<float, 5> ms{};
  cudaEvent_t begin = nullptr, end = nullptr;
  TENON_CUDA_CHECK(cudaEventCreate(&begin));
  TENON_CUDA_CHECK(cudaEventCreate(&end));
  for (float& run : ms) {
    product.forget(stream);
    TENON_CUDA_CHECK(cudaEventRecord(begin, stream));
    TENON_CUBLASLT_CHECK(product.run(algorithm, stream));
    TENON_CUDA_CHECK(cudaEventRecord(end, stream));
    TENON_CUDA_CHECK(cudaEventSynchronize(end));
    TENON_CUDA_CHECK(cudaEventElapsedTime(&run, begin, end));
  }
  TENON_CUDA_CHECK(cudaEventDestroy(begin));
  TENON_CUDA_CHECK(cudaEventDestroy(end));
  std::ranges::nth_element(ms, ms.begin() + ms.size() / 2);
  return ms[ms.size() / 2];
}

// This has the algorithms known for a GPU, from the file and from this process's own measurements.
class TuningFile {
 public:
  using Known = std::map<ProductKey, Algorithm>;

  explicit TuningFile(int device) {
    std::filesystem::path folder;
    if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
      folder = cache;
    } else if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
      folder = std::filesystem::path(home) / ".cache";
    } else {
      return;
    }
    cudaDeviceProp properties{};
    TENON_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    std::string gpu = properties.name;
    std::ranges::replace_if(
        gpu, [](unsigned char c) { return std::isalnum(c) == 0; }, '-');
    path_ = folder / "tenon" / ("cublaslt-" + gpu + "-" + std::to_string(cublasLtGetVersion()) + ".txt");
    read();
  }

  const Algorithm* find(const ProductKey& key) const {
    const auto found = known_.find(key);
    return found == known_.end() ? nullptr : &found->second;
  }

  void put(const ProductKey& key, const Algorithm& algorithm) {
    read();  // others may have measured meanwhile
    known_[key] = algorithm;
    if (!path_.empty()) write();
  }

 private:
  static constexpr const char* kTitle = "tenon cublaslt 1";

  void read() {
    std::ifstream file(path_);
    std::string line;
    if (!std::getline(file, line) || line != kTitle) return;
    while (std::getline(file, line)) {
      std::istringstream in(line);
      ProductKey key{};
      Algorithm algorithm{};
      for (int64_t& number : key) in >> number;
      in >> std::hex;
      for (uint64_t& word : algorithm.raw.data) in >> word;
      if (in) known_.emplace(key, algorithm);
    }
  }

  // It is written beside and renamed, so that a reader finds the old or the new file. A failure costs a measurement.
  void write() const {
    std::error_code ignored;
    std::filesystem::create_directories(path_.parent_path(), ignored);
    const std::filesystem::path beside = path_.string() + "." + std::to_string(getpid());
    std::ofstream file(beside);
    file << kTitle << '\n';
    for (const auto& [key, algorithm] : known_) {
      for (const int64_t number : key) file << std::dec << number << ' ';
      for (const uint64_t word : algorithm.raw.data) file << std::hex << word << ' ';
      file << '\n';
    }
    file.close();
    if (file) {
      std::filesystem::rename(beside, path_, ignored);
    } else {
      std::filesystem::remove(beside, ignored);
    }
  }

  std::filesystem::path path_;  // if empty, there is no place
  Known known_;
};

// This holds one GPU's handle and choices as long as the plugin's library, so the process. Call it under its mutex.
class ProductRunner {
 public:
  explicit ProductRunner(int device) : file_(device) { TENON_CUBLASLT_CHECK(cublasLtCreate(&handle_)); }

  void run(const Product& p, const ProductPointers& at, cudaStream_t stream) {
    LtProduct product(handle_, p, at);
    const ProductKey key = product_key(p, at);
    const auto found = chosen_.find(key);
    TENON_CUBLASLT_CHECK(product.run(found != chosen_.end() ? found->second : choose(p, at, stream), stream));
  }

  // Says whether cuBLASLt has an algorithm for a product of tensors that begin at whole 256 bytes.
  bool has_algorithm(const Product& p) {
    ProductPointers at{};
    // cuBLASLt wants to see an address here, but reads nothing of it before a product runs.
    if (p.scaled()) at.x_scales = at.w_scales = reinterpret_cast<const float*>(uintptr_t{256});
    const ProductKey key = product_key(p, at);
    auto found = has_.find(key);
    if (found == has_.end()) found = has_.emplace(key, !LtProduct(handle_, p, at).proposals(key).empty()).first;
    return found->second;
  }

 private:
  [[noreturn]] static void refuse(const ProductKey& key) {
    std::ostringstream what;
    what << "cuBLASLt has no algorithm for the product";
    for (const int64_t number : key) what << ' ' << number;
    what << " (rows, n, k, strides of x, y and addend, types in and out, biased, alignment, in place)";
    throw sdk::Failed(what.str());
  }
  Algorithm choose(const Product& p, const ProductPointers& at, cudaStream_t stream) {
    LtProduct product(handle_, p, at);
    const ProductKey key = product_key(p, at);
    const char* wish = std::getenv("TENON_TUNING");
    const bool tuning = wish == nullptr || std::string(wish) != "off";
    if (const Algorithm* known = tuning ? file_.find(key) : nullptr; known != nullptr && product.takes(*known)) {
      return chosen_[key] = *known;
    }
    const auto proposals = product.proposals(key);
    if (proposals.empty()) refuse(key);
    cudaStreamCaptureStatus capture{};
    TENON_CUDA_CHECK(cudaStreamIsCapturing(stream, &capture));
    if (capture != cudaStreamCaptureStatusNone) return proposals.front();  // it is measured when there is a chance
    if (!tuning) return chosen_[key] = proposals.front();
    const bool in_place = key.back() != 0;
    const TakenMemory apart(in_place ? bytes_of_y(p) : 0, stream);
    if (in_place && apart.get() == nullptr) return chosen_[key] = proposals.front();
    ProductPointers own = at;
    if (in_place) {
      own.y = apart.get();
      own.addend = static_cast<const float*>(own.y);
    }
    LtProduct trial(handle_, p, own);
    chosen_[key] = fastest(trial, proposals, stream);
    file_.put(key, chosen_[key]);
    return chosen_[key];
  }
  static size_t bytes_of_y(const Product& p) {
    return static_cast<size_t>((p.rows - 1) * p.y_stride + p.n) * sizeof(float);
  }

  static Algorithm fastest(LtProduct& product, const std::vector<Algorithm>& proposals, cudaStream_t stream) {
    const Algorithm* best = &proposals.front();
    float least = std::numeric_limits<float>::max();
    for (const Algorithm& algorithm : proposals) {
      const float ms = median_ms(product, algorithm, stream);
      if (ms < least) {
        least = ms;
        best = &algorithm;
      }
    }
    return *best;
  }

  cublasLtHandle_t handle_ = nullptr;
  TuningFile file_;
  std::map<ProductKey, Algorithm> chosen_;
  std::map<ProductKey, bool> has_;
};

}  // namespace tenon::cuda::detail
