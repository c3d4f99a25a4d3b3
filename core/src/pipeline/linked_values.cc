#include "tenon/core/linked_values.h"

#include <cmath>
#include <cstring>

#include "tenon/sdk/convert.h"
#include "tenon/sdk/small_floats.h"

namespace tenon {
namespace {

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

int64_t columns_of(const tenon_tensor& t) {
  if (sdk::is_tiled(t)) {
    const int64_t all = sdk::tiled_columns(t);
    if (!sdk::is_normed(t)) return all;
    const int64_t rows = sdk::rows_of(t), step = sdk::octet_of_sums_columns(rows);
    int64_t columns = all / step * step;
    while (columns + sdk::number_columns(columns, rows) > all) columns -= step;
    return columns;
  }
  return t.format == TENON_F8E4M3 ? t.dim[1] - sdk::kScaleBytes : t.dim[1];
}

}  // namespace

LinkedValues::LinkedValues(const tenon_tensor& t, const std::byte* bytes)
    : t_(t), bytes_(bytes), columns_(columns_of(t)) {}

float LinkedValues::element(int64_t index) const {
  if (t_.format == TENON_F8E4M3) {
    const auto code = read<uint8_t>(bytes_ + index);
    return sdk::SmallFloat<4, 3>::is_nan(code) ? NAN : sdk::SmallFloat<4, 3>::value(code);
  }
  const auto half = read<uint16_t>(bytes_ + index * static_cast<int64_t>(sizeof(uint16_t)));
  return t_.format == TENON_F16 ? sdk::half_to_float(half) : sdk::bf16_to_float(half);
}

float LinkedValues::at(int64_t row, int64_t column) const {
  if (!sdk::is_tiled(t_)) {
    const float value = element(row * t_.dim[1] + column);
    return t_.format == TENON_F8E4M3 ? value * read<float>(bytes_ + row * t_.dim[1] + columns_) : value;
  }
  // Octet i has the columns 2 i and 2 i + 1 of each 8 of the 32 columns.
  const int64_t part_rows = t_.dim[t_.rank - 2], octets = sdk::tiled_columns(t_) / 8,
                octet = column / 32 * 4 + column % 8 / 2, place = column % 32 / 8 * 2 + column % 2;
  const auto at_octet = [&](int64_t o) { return (row / part_rows * octets + o) * part_rows + row % part_rows; };
  float value = element(at_octet(octet) * 8 + place);
  if (sdk::is_staggered(t_) && octet % 2 == 1) value *= 16;
  if (!sdk::is_normed(t_)) return value;
  // This octet begins with 1 over the row's power.
  const int64_t unscaled = columns_ / 8 + columns_ / sdk::octet_of_sums_columns(sdk::rows_of(t_));
  return value * read<float>(bytes_ + at_octet(unscaled) * 16);
}

}  // namespace tenon
