// Every tensor that is seen has a Piece: where it begins in the tensor that the file has, and how far its rows, and in
// a transposed tensor its columns, are apart there. A piece that is contiguous is read and mapped as it is; others are
// read row by row.
#include "cut_weights.h"

#include <algorithm>
#include <cstring>

#include "expert_tensors.h"
#include "layout.h"

namespace tenon::weights {
namespace {

[[noreturn]] void refuse(const Weights& source, const WeightTensor& t, const std::string& expected) {
  throw Error(ErrorCode::kModel, {t.file < source.files().size() ? source.files()[t.file].string() : ""},
              "tensor " + in_quotes(t.name) + " is " + describe(t) + ", expected " + expected);
}

}  // namespace

CutWeights::CutWeights(const Weights& source, const std::vector<Cut>& cuts)
    : CutWeights(source, table_of(source, cuts)) {}

CutWeights::CutWeights(const Weights& source, Table table)
    : TableWeights(std::move(table.contents), source.files()), source_(source), pieces_(std::move(table.pieces)) {}

CutWeights::Table CutWeights::table_of(const Weights& source, const std::vector<Cut>& cuts) {
  Table table;
  table.contents.convention = source.convention();
  for (const std::string& key : source.metadata_keys()) table.contents.metadata.emplace(key, *source.metadata(key));
  for (const WeightTensor& t : source.tensors()) {
    const auto cut = std::find_if(cuts.begin(), cuts.end(), [&](const Cut& c) { return c.name == t.name; });
    if (cut != cuts.end()) {
      add_parts(source, t, *cut, table);
      continue;
    }
    table.contents.tensors.push_back(t);
    table.pieces.push_back({.source = &t, .row_bytes = t.bytes, .row_step = t.bytes});
  }
  return table;
}

void CutWeights::add_parts(const Weights& source, const WeightTensor& tensor, const Cut& cut, Table& table) {
  const int64_t turns = std::max<int64_t>(1, static_cast<int64_t>(cut.parts.size()));
  const std::string matrices = "(experts, " + std::string(cut.transposed ? "columns, " : "") + std::to_string(turns) +
                               " x rows" + (cut.transposed ? ")" : ", ...)");
  const size_t rank = tensor.shape.size();
  if (cut.transposed ? rank != 3 : rank < 2) refuse(source, tensor, matrices);
  const size_t row_dim = cut.transposed ? 2 : 1;
  const int64_t experts = tensor.shape[0], rows = tensor.shape[row_dim] / turns;
  if (experts < 1 || experts > kMostExperts || rows < 1 || tensor.shape[row_dim] % turns != 0) {
    refuse(source, tensor, matrices + ", up to " + std::to_string(kMostExperts) + " experts");
  }
  WeightTensor part = tensor;
  part.shape = {rows};
  if (cut.transposed) {
    part.shape.push_back(tensor.shape[1]);
  } else {
    part.shape.insert(part.shape.end(), tensor.shape.begin() + 2, tensor.shape.end());
  }
  const auto row_bytes = stored_bytes(tensor.format, std::span(part.shape).subspan(1));
  const auto element_bytes = stored_bytes(tensor.format, {});
  if (!row_bytes || *row_bytes == 0 || !element_bytes) refuse(source, tensor, "a format of numbers of whole bytes");
  part.bytes = static_cast<uint64_t>(rows) * *row_bytes;
  Piece piece{.source = &tensor, .row_bytes = *row_bytes, .row_step = *row_bytes * static_cast<uint64_t>(turns)};
  if (cut.transposed) {
    piece.element_bytes = *element_bytes;
    piece.row_step = *element_bytes * static_cast<uint64_t>(turns);
    piece.column_step = *element_bytes * static_cast<uint64_t>(tensor.shape[2]);
  }
  const uint64_t step = cut.transposed ? *element_bytes : *row_bytes;
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t p = 0; p < turns; ++p) {
      piece.first =
          static_cast<uint64_t>(e) * (tensor.bytes / static_cast<uint64_t>(experts)) + static_cast<uint64_t>(p) * step;
      part.name = cut.stem + "." + std::to_string(e) + "." +
                  (cut.parts.empty() ? "" : cut.parts[static_cast<size_t>(p)] + ".") + cut.suffix;
      part.offset = tensor.offset + piece.first;
      table.contents.tensors.push_back(part);
      table.pieces.push_back(piece);
    }
  }
}

const std::byte* CutWeights::mapped(const WeightTensor& tensor) const {
  const Piece& piece = piece_of(tensor);
  const std::byte* bytes = piece.whole() ? source_.mapped(*piece.source) : nullptr;
  if (bytes == nullptr) return nullptr;
  bytes += piece.first;
  return reinterpret_cast<uintptr_t>(bytes) % natural_alignment(tensor.format) == 0 ? bytes : nullptr;
}

void CutWeights::read(const WeightTensor& tensor, uint64_t offset, std::span<std::byte> out) const {
  check_range(tensor, offset, out.size());
  const Piece& piece = piece_of(tensor);
  if (piece.whole()) return source_.read(*piece.source, piece.first + offset, out);
  std::vector<std::byte> row;
  while (!out.empty()) {
    const uint64_t begin = offset % piece.row_bytes, rows = out.size() / piece.row_bytes;
    uint64_t n = rows * piece.row_bytes;
    if (begin == 0 && rows > 0) {
      read_rows(piece, offset / piece.row_bytes, out.first(n));
    } else {
      n = std::min<uint64_t>(piece.row_bytes - begin, out.size());
      row.resize(piece.row_bytes);
      read_rows(piece, offset / piece.row_bytes, row);
      std::copy_n(row.begin() + static_cast<ptrdiff_t>(begin), n, out.begin());
    }
    out = out.subspan(n);
    offset += n;
  }
}

// Reads whole rows from the row `first` on. Of a transposed tensor the rows' elements of one column stand near
// each other, so it is read column by column.
void CutWeights::read_rows(const Piece& piece, uint64_t first, std::span<std::byte> out) const {
  const uint64_t rows = out.size() / piece.row_bytes, begin = piece.first + first * piece.row_step;
  if (piece.element_bytes == 0) {
    for (uint64_t r = 0; r < rows; ++r) {
      source_.read(*piece.source, begin + r * piece.row_step, out.subspan(r * piece.row_bytes, piece.row_bytes));
    }
    return;
  }
  const uint64_t columns = piece.row_bytes / piece.element_bytes;
  std::vector<std::byte> column((rows - 1) * piece.row_step + piece.element_bytes);
  for (uint64_t c = 0; c < columns; ++c) {
    source_.read(*piece.source, begin + c * piece.column_step, column);
    for (uint64_t r = 0; r < rows; ++r) {
      std::memcpy(out.data() + r * piece.row_bytes + c * piece.element_bytes, column.data() + r * piece.row_step,
                  piece.element_bytes);
    }
  }
}

std::optional<tenon_generated> CutWeights::generated(const WeightTensor& tensor, uint64_t offset,
                                                     uint64_t bytes) const {
  const Piece& piece = piece_of(tensor);
  return piece.whole() ? source_.generated(*piece.source, piece.first + offset, bytes) : std::nullopt;
}

void CutWeights::prefetch(const WeightTensor& tensor) const {
  const Piece& piece = piece_of(tensor);
  if (piece.row_bytes == piece.source->bytes) source_.prefetch(*piece.source);
}

void CutWeights::release(const WeightTensor& tensor, uint64_t offset, uint64_t bytes) const {
  const Piece& piece = piece_of(tensor);
  if (piece.whole()) source_.release(*piece.source, piece.first + offset, bytes);
}

}  // namespace tenon::weights
