// Reads tensors and converts them, chunk by chunk: the chunks of a batch by one thread each, then handed on in order. A
// chunk begins and ends at whole blocks of either format, so that the result does not depend on the number of threads.
#include "tensor_converter.h"

#include <algorithm>
#include <system_error>
#include <thread>

#include "layout.h"
#include "tenon/sdk/gguf_blocks.h"

namespace tenon::weights {
namespace {

constexpr size_t kChunk = size_t{1} << 18;  // weights that a thread takes at a time; whole blocks of any format
constexpr size_t kMostThreads = 16;

uint64_t bytes_of(tenon_format format, size_t n) {
  const tenon_block block = tenon_format_block(format);
  return n / block.elements * block.bytes;
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

void refuse_weight(const Weights& model, const WeightTensor& t, size_t index, const char* why) {
  std::string place = "weight " + std::to_string(index);
  if (t.shape.size() >= 2) {
    const auto width = static_cast<size_t>(t.shape.back());
    place += " (column " + std::to_string(index % width) + " of row " + std::to_string(index / width) + ")";
  }
  throw Error(ErrorCode::kModel, {model.files().at(t.file).string()},
              "tensor " + in_quotes(t.name) + ": " + place + " " + why);
}

void TensorConverter::convert(const WeightTensor& source, tenon_format format, const Put& put) {
  const size_t elements = element_count(source), batch = kChunk * chunks_.size();
  const Job job{source, format};
  for (Chunk& chunk : chunks_) {
    // Memory is taken here, since a thread that cannot have it would end the process.
    chunk.weights.resize(std::max(chunk.weights.size(), std::min(kChunk, elements)));
  }
  for (size_t first = 0; first < elements; first += batch) {
    const size_t count = std::min(batch, elements - first);
    in_.resize(bytes_of(source.format, count));
    model_.read(source, bytes_of(source.format, first), std::as_writable_bytes(std::span(in_)));
    encoded_.resize(bytes_of(format, count));
    convert_batch(job, first, count);
    put(std::as_bytes(std::span(encoded_)));
  }
}

void TensorConverter::convert_batch(const Job& job, size_t first, size_t count) {
  const auto work = [&](size_t index) {
    const size_t begin = index * kChunk;
    convert_chunk(job, begin, std::min(kChunk, count - begin), chunks_[index]);
  };
  const size_t used = (count + kChunk - 1) / kChunk;
  {
    std::vector<std::jthread> others;
    others.reserve(used);
    size_t shared = 1;
    try {
      for (; shared < used; ++shared) others.emplace_back(work, shared);
    } catch (const std::system_error&) {
      // The system starts no more threads: this one does what is left.
    }
    work(0);
    for (; shared < used; ++shared) work(shared);
  }
  for (size_t i = 0; i < used; ++i) {
    const std::optional<BadWeight>& bad = chunks_[i].bad;
    if (bad) refuse_weight(model_, job.source, first + i * kChunk + bad->index, bad->why);
  }
}

void TensorConverter::convert_chunk(const Job& job, size_t begin, size_t n, Chunk& chunk) {
  const tenon_format from = job.source.format, to = job.format;
  const uint8_t* in = in_.data() + bytes_of(from, begin);
  uint8_t* out = encoded_.data() + bytes_of(to, begin);
  chunk.bad.reset();
  if (sdk::can_unpack(from)) {
    sdk::unpack_row(from, in, n, chunk.weights.data());
    chunk.bad = from == to ? find_not_finite(chunk.weights.data(), n) : encode_row(to, chunk.weights.data(), n, out);
  }
  if (from == to) std::copy_n(in, bytes_of(from, n), out);
}

}  // namespace tenon::weights
