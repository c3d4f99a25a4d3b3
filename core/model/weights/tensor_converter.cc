#include "tensor_converter.h"

#include <algorithm>
#include <thread>

#include "layout.h"
#include "tenon/core/quantize_rows.h"
#include "tenon/sdk/gguf_blocks.h"

namespace tenon::weights {
namespace {

constexpr size_t kChunk = size_t{1} << 18;  // weights that a thread takes at a time; whole blocks of any format
constexpr size_t kMostThreads = 16;

std::optional<BadWeight> encode(tenon_format format, const float* w, size_t n, size_t width, uint8_t* out) {
  if (!sdk::is_quantized_rows(format)) return encode_row(format, w, n, out);
  if (const auto bad = find_not_finite(w, n)) return bad;
  const auto k = static_cast<uint32_t>(width);
  const uint32_t group = sdk::int4_group(format);
  for (size_t begin = 0; begin < n; begin += width, out += sdk::row_bytes(format, k)) {
    if (group == 0) {
      sdk::cpu::quantize_int8_row(w + begin, k, out);
    } else if (!sdk::cpu::quantize_int4_row(w + begin, k, group, out)) {
      return BadWeight{begin, "begins a row with a group whose range is too large for bf16"};
    }
  }
  return std::nullopt;
}

}  // namespace

size_t element_count(const WeightTensor& t) {
  size_t count = 1;
  for (const int64_t dim : t.shape) count *= static_cast<size_t>(dim);
  return count;
}

bool is_matrix(const WeightTensor& t) {
  return t.shape.size() >= 2 && sdk::can_unpack(t.format);
}

bool is_blocks(tenon_format format) {
  return tenon_format_block(format).elements > 1;
}

TensorConverter::TensorConverter(const Weights& model)
    : model_(model), chunks_(std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostThreads)) {}

void TensorConverter::convert(const WeightTensor& source, tenon_format format, const Put& put) {
  const size_t elements = element_count(source);
  const bool rows = sdk::is_quantized_rows(format);
  Job job{source, format, elements == 0 || source.shape.empty() ? 1 : static_cast<size_t>(source.shape.back()), kChunk};
  if (rows) job.chunk = std::max(job.width, kChunk / job.width * job.width);
  const size_t batch = job.chunk * chunks_.size();
  for (Chunk& chunk : chunks_) {
    // Here: a thread that cannot have memory would end the process.
    chunk.weights.resize(std::max(chunk.weights.size(), std::min(job.chunk, elements)));
  }
  for (size_t first = 0; first < elements; first += batch) {
    const size_t count = std::min(batch, elements - first);
    in_.resize(sdk::row_bytes(source.format, count));
    model_.read(source, sdk::row_bytes(source.format, first), std::as_writable_bytes(std::span(in_)));
    encoded_.resize(rows ? count / job.width * sdk::row_bytes(format, job.width) : sdk::row_bytes(format, count));
    convert_batch(job, first, count);
    put(std::as_bytes(std::span(encoded_)));
  }
}

void TensorConverter::convert_batch(const Job& job, size_t first, size_t count) {
  const auto work = [&](size_t index) {
    const size_t begin = index * job.chunk;
    convert_chunk(job, begin, std::min(job.chunk, count - begin), chunks_[index]);
  };
  const size_t used = (count + job.chunk - 1) / job.chunk;
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < used; ++i) others.emplace_back(work, i);
    work(0);
  }
  for (size_t i = 0; i < used; ++i) {
    if (chunks_[i].bad) refuse(job, first + i * job.chunk + chunks_[i].bad->index, chunks_[i].bad->why);
  }
}

void TensorConverter::convert_chunk(const Job& job, size_t begin, size_t n, Chunk& chunk) {
  const tenon_format from = job.source.format, to = job.format;
  const uint8_t* in = in_.data() + sdk::row_bytes(from, begin);
  const size_t rows_before = begin / job.width;
  uint8_t* out = encoded_.data() +
                 (sdk::is_quantized_rows(to) ? rows_before * sdk::row_bytes(to, job.width) : sdk::row_bytes(to, begin));
  chunk.bad.reset();
  if (sdk::can_unpack(from)) {
    sdk::unpack_row(from, in, n, chunk.weights.data());
    chunk.bad =
        from == to ? find_not_finite(chunk.weights.data(), n) : encode(to, chunk.weights.data(), n, job.width, out);
  }
  if (from == to) std::copy_n(in, sdk::row_bytes(from, n), out);
}

void TensorConverter::refuse(const Job& job, size_t index, const char* why) const {
  std::string place = "weight " + std::to_string(index);
  if (job.source.shape.size() >= 2) {
    place += " (column " + std::to_string(index % job.width) + " of row " + std::to_string(index / job.width) + ")";
  }
  throw Error(ErrorCode::kModel, {model_.files().at(job.source.file).string()},
              "tensor " + in_quotes(job.source.name) + ": " + place + " " + why);
}

}  // namespace tenon::weights
