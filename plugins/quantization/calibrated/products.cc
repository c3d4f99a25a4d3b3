// This is compiled once for each instruction set. A product goes block by block: kInner terms of kPanels panels of b
// are packed, lane beside lane, then a panel of a; each pair of panels makes a tile of c in registers. Packing costs
// one move for each element of b and block of rows, and lets a and b have any strides.
#include "products.h"

#include <algorithm>
#include <cstring>

#include "tenon/sdk/cpu/vector.h"

namespace tenon::calibrated {
namespace {

namespace cpu = sdk::cpu;

// The sums of a tile, a row of b and an element of a take 28 registers of 32 under AVX-512, and all 16 under AVX2.
constexpr uint32_t kTileRows = cpu::kWidth == 16 ? 8 : 4, kTileVectors = cpu::kWidth > 1 ? 3 : 4;

template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  using Type = cpu::Floats<cpu::kWidth>;
};
template <>
struct VectorOf<double> {
  using Type = cpu::Doubles<cpu::kDoubleWidth>;
};

constexpr uint32_t kInner = 256;  // terms of a block
constexpr uint32_t kPanels = 4;   // panels of b of a block

// Returns the matrix from element (i, j) on.
template <class T>
Strided<T> from_element(const Strided<T>& m, uint32_t i, uint32_t j) {
  return {m.data + i * m.row + j * m.column, m.row, m.column};
}
template <class T>
Strided<T> transposed(const Strided<T>& m) {
  return {m.data, m.column, m.row};
}

// Packs a panel of terms: to[k * kLanes + lane] = scale * from(lane, k); lanes past `lanes` are zeros.
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

// A tile of c, (rows kTileRows, columns kColumns), gets the product of a panel of a with one of b.
template <class T>
struct Tile {
  using Vector = typename VectorOf<T>::Type;
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
      for (Vector& v : row) v = Vector::zeros();
    }
    for (uint32_t k = 0; k < terms; ++k, a += kTileRows, b += kColumns) {
      Vector of_b[kTileVectors];
      for (uint32_t v = 0; v < kTileVectors; ++v) of_b[v] = Vector::load(b + v * kLanes);
      for (uint32_t r = 0; r < kTileRows; ++r) {
        const Vector of_a = Vector::all(a[r]);
        for (uint32_t v = 0; v < kTileVectors; ++v) sum[r][v] = multiply_add(of_a, of_b[v], sum[r][v]);
      }
    }
    T* c = to.c;
    if (to.rows == kTileRows && to.columns == kColumns) {
      for (auto& row : sum) {
        for (uint32_t v = 0; v < kTileVectors; ++v) {
          T* at = c + v * kLanes;
          store(at, add(Vector::load(at), row[v]));
        }
        c += to.c_row;
      }
      return;
    }
    T row[kColumns];
    for (uint32_t r = 0; r < to.rows; ++r, c += to.c_row) {
      for (uint32_t v = 0; v < kTileVectors; ++v) store(row + v * kLanes, sum[r][v]);
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
