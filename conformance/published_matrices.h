// Each of these makes a random matrix in a form that published_forms.h lists, with n rows of k. Columns in another order
// have one for each set.
#pragma once

#include <random>
#include <vector>

#include "conformance/quantization_host.h"

namespace tenon::conformance {

using Random = std::mt19937;

struct GptqOptions {
  uint32_t bits = 4;
  int64_t group = 128;
  bool act_order = false, v2 = false, with_g_idx = true;
};
// GPTQ puts codes of a column of x one after the other, down the words of a row of W, and zero points along the rows of
// W, less one in the first version.
FileMatrix gptq(const GptqOptions& o, const FileShape& shape, Random& random);

// AWQ: a word has eight rows of W, nibble j from below that of row order[j].
FileMatrix awq(int64_t group, int64_t n, int64_t k, Random& random);

struct CompressedOptions {
  uint32_t bits = 4;
  int64_t group = 128;
  bool packed = true, symmetric = true, act_order = false;
  tenon_format scale = TENON_BF16;
  bool one_scale = false;  // all rows have the same
  bool x_in_int8 = false;
};
// compressed-tensors puts codes along the row; they are signed numbers, from which 2^(bits - 1) was taken unless they
// are packed.
FileMatrix compressed(const CompressedOptions& o, const FileShape& shape, Random& random);

// In fp8 the scale of weight (row, i) is number `place` of a tensor.
struct Fp8Options {
  const char* scale_name = "weight_scale";
  tenon_format format = TENON_F32;
  std::vector<int64_t> shape;         // the shape of the scales, for n rows of k
  int64_t block_rows, block_columns;  // so many share a scale
  const char* x_scale_name = "input_scale";
  tenon_format x_scale = TENON_FORMAT_NONE;  // none: the file has no scale by which x is rounded
  int64_t x_group = 0;                       // each step finds scales of so many columns of a row of x; 0: none
  bool x_powers = false;                     // they are powers of two
};
FileMatrix fp8(const Fp8Options& o, int64_t n, int64_t k, Random& random);

// bitsandbytes in four bits has the upper half of a byte first; scales are of 64 weights, or codes of a table times a
// scale of 256 of them, and an offset.
FileMatrix float4(bool normal, bool nested, int64_t n, int64_t k, Random& random);

// bitsandbytes in eight bits has SCB, the largest of a row, which 127 stands for. x of a magnitude of x_outlier and above
// stays out of int8.
FileMatrix int8(double x_outlier, int64_t n, int64_t k, Random& random);

struct E2m1Options {
  bool nv = false, blocks = false;
  const char *codes = "weight_packed", *scales = "weight_scale";
};
// A byte has two codes, the first one below. In MXFP4 32 weights share a power of two; in NVFP4 16 share an e4m3
// number, divided by one of all.
FileMatrix e2m1(const E2m1Options& o, int64_t n, int64_t k, Random& random);

struct TorchAoOptions {
  uint32_t bits = 4;
  int64_t group = 32;  // 0: the whole row
  tenon_format scale = TENON_BF16;
  bool symmetric = false;
};
// torchao has numbers with a sign, a byte each.
FileMatrix torchao(const TorchAoOptions& o, int64_t n, int64_t k, Random& random);

// torchao's Int4Tensor has numbers with a sign, two a byte; scales and zero points, which are floats, are by group.
FileMatrix torchao_packed(int64_t group, int64_t n, int64_t k, Random& random);

// HQQ has codes of groups, which are the rows of a matrix, cut into stretches that share elements, the first in the
// highest bits; zero points are no whole numbers.
FileMatrix hqq(uint32_t bits, int64_t group, int64_t n, int64_t k, Random& random);

}  // namespace tenon::conformance
