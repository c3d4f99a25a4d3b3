// Calibrations multiply matrices with this when they solve with what they have observed. The matrices have thousands of
// rows and columns, so the products are blocked and compiled for each instruction set (products.cc); they differ
// between sets in the last bits. A library would bring an allocator, threads and a choice of instruction sets of its
// own into a plugin, for the three functions that are used here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenon/sdk/cpu/linear_site.h"

namespace tenon::calibrated {

// Element (i, j) lies at data[i * row + j * column].
template <class T>
struct Strided {
  const T* data;
  ptrdiff_t row, column;
};

// This adds to c[i][j] scale * the sum over k < inner of a(i, k) b(k, j), for i < rows and j < columns.
template <class C, class A, class B>
struct Product {
  C* c;
  ptrdiff_t c_row;  // elements from one row of c to the next
  uint32_t rows, columns, inner;
  C scale;
  Strided<A> a;
  Strided<B> b;
  void* scratch;  // kProductScratch bytes, of the thread alone
};

inline constexpr size_t kProductScratch = 224 << 10;

// This has the products of an instruction set. Any thread may call them.
struct Products {
  void (*f64)(const Product<double, double, double>&);
  void (*f32)(const Product<float, float, float>&);
  void (*f32_by_f64)(const Product<float, float, double>&);
};

namespace scalar {
extern const Products kProducts;
}
namespace avx2 {
extern const Products kProducts;
}
namespace avx512 {
extern const Products kProducts;
}

inline const Products& products(sdk::cpu::Isa isa) {
  using sdk::cpu::Isa;
  return isa >= Isa::kAvx512 ? avx512::kProducts : isa >= Isa::kAvx2 ? avx2::kProducts : scalar::kProducts;
}

}  // namespace tenon::calibrated
