// Compiled once for each instruction set. A product goes block by block: kInner terms of kPanels panels of b are packed,
// lane beside lane, then a panel of a; each pair of panels makes a tile of c in registers. Packing costs one move for each
// element of b and block of rows, and lets a and b have any strides.
#include "products.h"

#include <algorithm>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace tenon::calibrated {
namespace {

#if defined(__AVX512F__)
constexpr uint32_t kTileRows = 8, kTileVectors = 3;
struct FloatLanes {
  using Vector = __m512;
  static Vector zeros() { return _mm512_setzero_ps(); }
  static Vector load(const float* p) { return _mm512_loadu_ps(p); }
  static Vector all(float x) { return _mm512_set1_ps(x); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  static void store(float* p, Vector a) { _mm512_storeu_ps(p, a); }
};
struct DoubleLanes {
  using Vector = __m512d;
  static Vector zeros() { return _mm512_setzero_pd(); }
  static Vector load(const double* p) { return _mm512_loadu_pd(p); }
  static Vector all(double x) { return _mm512_set1_pd(x); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_pd(a, b, c); }
  static Vector add(Vector a, Vector b) { return _mm512_add_pd(a, b); }
  static void store(double* p, Vector a) { _mm512_storeu_pd(p, a); }
};
#elif defined(__AVX2__)
constexpr uint32_t kTileRows = 4, kTileVectors = 3;
struct FloatLanes {
  using Vector = __m256;
  static Vector zeros() { return _mm256_setzero_ps(); }
  static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static Vector all(float x) { return _mm256_set1_ps(x); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  static void store(float* p, Vector a) { _mm256_storeu_ps(p, a); }
};
struct DoubleLanes {
  using Vector = __m256d;
  static Vector zeros() { return _mm256_setzero_pd(); }
  static Vector load(const double* p) { return _mm256_loadu_pd(p); }
  static Vector all(double x) { return _mm256_set1_pd(x); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_pd(a, b, c); }
  static Vector add(Vector a, Vector b) { return _mm256_add_pd(a, b); }
  static void store(double* p, Vector a) { _mm256_storeu_pd(p, a); }
};
#else
constexpr uint32_t kTileRows = 4, kTileVectors = 4;
template <class T>
struct PlainLanes {
  using Vector = T;
  static Vector zeros() { return 0; }
  static Vector load(const T* p) { return *p; }
  static Vector all(T x) { return x; }
  static Vector fma(Vector a, Vector b, Vector c) { return a * b + c; }
  static Vector add(Vector a, Vector b) { return a + b; }
  static void store(T* p, Vector a) { *p = a; }
};
using FloatLanes = PlainLanes<float>;
using DoubleLanes = PlainLanes<double>;
#endif

template <class T>
struct LanesOf;
template <>
struct LanesOf<float> {
  using Type = FloatLanes;
};
template <>
struct LanesOf<double> {
  using Type = DoubleLanes;
};

constexpr uint32_t kInner = 256;  // terms of a block
constexpr uint32_t kPanels = 4;   // panels of b of a block

// The matrix from element (i, j) on.
template <class T>
Strided<T> from_element(const Strided<T>& m, uint32_t i, uint32_t j) {
  return {m.data + i * m.row + j * m.column, m.row, m.column};
}
template <class T>
Strided<T> transposed(const Strided<T>& m) {
  return {m.data, m.column, m.row};
}

// Lanes of a panel of terms: to[k * kLanes + lane] = scale * from(lane, k); lanes past `lanes` are zeros.
template <uint32_t kLanes, class To, class From>
void pack(To* to, Strided<From> from, uint32_t lanes, uint32_t terms, To scale) {
  for (uint32_t k = 0; k < terms; ++k, to += kLanes, from.data += from.column) {
    if (from.row == 1 && lanes == kLanes) {
      for (ptrdiff_t i = 0; i < kLanes; ++i) to[i] = scale * static_cast<To>(from.data[i]);
    } else if (from.row == -1 && lanes == kLanes) {
      for (ptrdiff_t i = 0; i < kLanes; ++i) to[i] = scale * static_cast<To>(from.data[-i]);
    } else {
      for (ptrdiff_t i = 0; i < kLanes; ++i) {
        to[i] = i < lanes ? scale * static_cast<To>(from.data[i * from.row]) : To{0};
      }
    }
  }
}

// A tile of c, (kTileRows, kTileVectors vectors), gets the product of a panel of a with one of b.
template <class T>
struct Tile {
  using Lanes = typename LanesOf<T>::Type;
  using Vector = typename Lanes::Vector;
  static constexpr uint32_t kLanes = sizeof(Vector) / sizeof(T), kColumns = kTileVectors * kLanes;

  // A tile lies here in c. At the edges of c it has fewer than kTileRows rows or kColumns columns.
  struct Place {
    T* c;
    ptrdiff_t c_row;
    uint32_t rows, columns;
  };
  static void multiply(const T* a, const T* b, uint32_t terms, const Place& to) {
    Vector sum[kTileRows][kTileVectors];
    for (auto& row : sum) {
      for (Vector& v : row) v = Lanes::zeros();
    }
    for (uint32_t k = 0; k < terms; ++k, a += kTileRows, b += kColumns) {
      Vector of_b[kTileVectors];
      for (uint32_t v = 0; v < kTileVectors; ++v) of_b[v] = Lanes::load(b + v * kLanes);
      for (uint32_t r = 0; r < kTileRows; ++r) {
        const Vector of_a = Lanes::all(a[r]);
        for (uint32_t v = 0; v < kTileVectors; ++v) sum[r][v] = Lanes::fma(of_a, of_b[v], sum[r][v]);
      }
    }
    T* c = to.c;
    if (to.rows == kTileRows && to.columns == kColumns) {
      for (auto& row : sum) {
        for (uint32_t v = 0; v < kTileVectors; ++v) {
          T* at = c + v * kLanes;
          Lanes::store(at, Lanes::add(Lanes::load(at), row[v]));
        }
        c += to.c_row;
      }
      return;
    }
    T row[kColumns];
    for (uint32_t r = 0; r < to.rows; ++r, c += to.c_row) {
      for (uint32_t v = 0; v < kTileVectors; ++v) Lanes::store(row + v * kLanes, sum[r][v]);
      for (uint32_t j = 0; j < to.columns; ++j) c[j] += row[j];
    }
  }
};

template <class C, class A, class B>
void multiply(const Product<C, A, B>& p) {
  using T = Tile<C>;
  constexpr uint32_t kBlockColumns = kPanels * T::kColumns;
  static_assert(sizeof(C) * kInner * (kBlockColumns + kTileRows) <= kProductScratch);
  C* const of_b = static_cast<C*>(p.scratch);
  C* const of_a = of_b + size_t{kInner} * kBlockColumns;
  for (uint32_t j0 = 0; j0 < p.columns; j0 += kBlockColumns) {
    const uint32_t block = std::min(kBlockColumns, p.columns - j0);
    for (uint32_t k0 = 0; k0 < p.inner; k0 += kInner) {
      const uint32_t terms = std::min(kInner, p.inner - k0);
      for (uint32_t j = 0; j < block; j += T::kColumns) {
        pack<T::kColumns>(of_b + size_t{j} * terms, transposed(from_element(p.b, k0, j0 + j)),
                          std::min(T::kColumns, block - j), terms, C{1});
      }
      for (uint32_t i = 0; i < p.rows; i += kTileRows) {
        const uint32_t rows = std::min(kTileRows, p.rows - i);
        pack<kTileRows>(of_a, from_element(p.a, i, k0), rows, terms, p.scale);
        for (uint32_t j = 0; j < block; j += T::kColumns) {
          T::multiply(of_a, of_b + size_t{j} * terms, terms,
                      {p.c + i * p.c_row + j0 + j, p.c_row, rows, std::min(T::kColumns, block - j)});
        }
      }
    }
  }
}

}  // namespace

constinit const Products TENON_ISA::kProducts{&multiply<double, double, double>, &multiply<float, float, float>,
                                              &multiply<float, float, double>};

}  // namespace tenon::calibrated
