// Loads sites from the model's file, some rows of a source at a time, so that progress moves and scratch memory stays
// small. A device with queues gets them through pinned memory, which is filled anew once the device is done with it.
#include "weight_loader.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "../../model/weights/layout.h"
#include "tenon/core/error.h"
#include "tenon/sdk/convert.h"
#include "tenon/sdk/error.h"

namespace tenon {
namespace {

// This many bytes of a source are loaded at a time: progress moves, and scratch stays small. Devices with
// queues take more, so that their copies pay.
constexpr uint64_t kChunkBytes = uint64_t{4} << 20, kQueueChunkBytes = uint64_t{32} << 20;

float value_at(tenon_format format, const std::byte* data, size_t i) {
  if (format == TENON_F32) {
    float f = 0;
    std::memcpy(&f, data + i * sizeof(f), sizeof(f));
    return f;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, data + i * sizeof(bits), sizeof(bits));
  return format == TENON_F16 ? sdk::half_to_float(bits) : sdk::bf16_to_float(bits);
}

uint32_t passes_of(const SiteGroup& group) {
  return std::max(group.footprint.passes, 1U);
}

uint64_t bytes_of(const Matrix& m) {
  uint64_t sum = 0;
  for (const WeightTensor* t : m.tensors) sum += t->bytes;
  return sum;
}

}  // namespace

std::vector<WeightLoader::Piece> WeightLoader::pieces_of(const Matrix& matrix, int64_t rows, uint64_t row, uint64_t n) {
  std::vector<Piece> pieces;
  for (const WeightTensor* t : matrix.tensors) {
    const bool by_row = !t->shape.empty() && t->shape.front() == rows;
    const uint64_t row_bytes = by_row ? t->bytes / static_cast<uint64_t>(rows) : 0;
    pieces.push_back(by_row ? Piece{t, row * row_bytes, n * row_bytes, true} : Piece{t, 0, t->bytes, false});
  }
  return pieces;
}

uint64_t WeightLoader::rows_a_call(const Matrix& matrix, int64_t rows, const SiteGroup& group) const {
  const auto all = static_cast<uint64_t>(rows);
  if ((group.footprint.flags & TENON_FOOTPRINT_WHOLE) != 0) return all;
  uint64_t row_bytes = 0;
  for (const Piece& p : pieces_of(matrix, rows, 0, 1)) row_bytes += p.rows ? p.bytes : 0;
  const uint64_t most = components_.queues() ? kQueueChunkBytes : kChunkBytes;
  return std::clamp<uint64_t>(most / std::max<uint64_t>(row_bytes, 1), 1, all);
}

bool WeightLoader::in_place(const Site& site, const SiteGroup& group) const {
  return !components_.queues() && (group.footprint.flags & TENON_FOOTPRINT_IN_PLACE) != 0 &&
         std::all_of(group.mats.begin(), group.mats.end(), [&](size_t m) {
           return weights_.mapped(*plain_tensor(site.decl.mats[m].sets.front())) != nullptr;
         });
}

void WeightLoader::add_stores() {
  for (Site& site : declared_.sites) {
    for (SiteGroup& group : site.groups) {
      const bool mapped = in_place(site, group);
      const std::string path =
          group.mats.size() == site.decl.mats.size() ? site.decl.path : site.decl.mats[group.mats.front()].path;
      for (uint32_t i = 0; i < group.footprint.n_stores; ++i) {
        group.stores.push_back(storages_.add(path + "#" + std::to_string(i),
                                             mapped ? MemoryKind::kMapped : MemoryKind::kWeights,
                                             group.footprint.store_bytes[i]));
      }
      if (mapped) continue;
      load_bytes_ = std::max(load_bytes_, align(group.footprint.load_bytes));
      for (const size_t m : group.mats) {
        const SiteMatrix& of = site.decl.mats[m];
        for (const Matrix& matrix : of.sets) {
          uint64_t bytes = 0;
          for (const Piece& p : pieces_of(matrix, of.rows, 0, rows_a_call(matrix, of.rows, group))) {
            if (weights_.mapped(*p.tensor) == nullptr || components_.queues()) bytes += align(p.bytes);
          }
          staging_bytes_ = std::max(staging_bytes_, bytes);
        }
      }
    }
  }
}

uint64_t WeightLoader::total_bytes() const {
  uint64_t sum = 0;
  for (const Site& site : declared_.sites) {
    for (const SiteGroup& group : site.groups) {
      for (const size_t m : group.mats) {
        for (const Matrix& matrix : site.decl.mats[m].sets) sum += passes_of(group) * bytes_of(matrix);
      }
    }
  }
  return sum;
}

void WeightLoader::advance(uint64_t bytes) {
  done_ += bytes;
  if (progress_) progress_(done_, total_);
}

void WeightLoader::load(std::byte* scratch, const LoadProgress& progress) {
  progress_ = progress;
  scratch_ = scratch;
  done_ = staged_ = 0;
  total_ = total_bytes();
  if (components_.queues()) {
    pinned_ = static_cast<std::byte*>(
        components_.context.memory().alloc(TENON_SPACE_HOST, kBuffers * staging_bytes_, "weights on their way"));
  }
  for (const Vector& v : declared_.vectors) {
    if (v.storage) load_vector(v);
  }
  for (Site& site : declared_.sites) {
    for (SiteGroup& group : site.groups) load_group(site, group);
  }
  wait();
  components_.context.memory().release(pinned_);
}

void WeightLoader::wait() {
  if (!components_.queues()) return;
  const tenon_device& device = components_.device();
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (device.wait(device.self, components_.queue(), &why) != TENON_OK) {
    throw Error(ErrorCode::kPlugin, "a kernel failed on device." + std::string(device.kind) + ": " + text +
                                        ", while weights were loaded, up to " + newest_);
  }
}

std::vector<tenon_slice> WeightLoader::stage(const std::vector<Piece>& pieces) {
  const uint64_t buffer = components_.queues() ? staged_++ % kBuffers * staging_bytes_ : 0;
  in_use_ |= buffer == 0;
  uint64_t at = buffer;
  std::vector<tenon_slice> slices;
  for (const Piece& p : pieces) {
    const std::byte* mapped = weights_.mapped(*p.tensor);
    if (!components_.queues() && mapped != nullptr) {
      slices.push_back({mapped + p.offset, p.bytes});
      continue;
    }
    std::byte* staging = scratch_ + load_bytes_ + at;
    if (components_.queues()) {
      slices.push_back({stage_on_device(p, at), p.bytes});
    } else {
      weights_.read(*p.tensor, p.offset, std::span(staging, p.bytes));
      slices.push_back({staging, p.bytes});
    }
    at += align(p.bytes);
  }
  return slices;
}

const void* WeightLoader::stage_on_device(const Piece& p, uint64_t at) {
  std::byte* staging = scratch_ + load_bytes_ + at;
  const WeightTensor& t = *p.tensor;
  const tenon_device& device = components_.device();
  if (device.generate != nullptr) {
    if (const std::optional<tenon_generated> made = weights_.generated(t, p.offset, p.bytes)) {
      char text[256] = "";
      tenon_reason why{text, sizeof(text)};
      if (device.generate(device.self, components_.queue(), staging, &*made, &why) == TENON_OK) return staging;
      throw Error(ErrorCode::kPlugin, std::string("device.") + device.kind + ": making up " + t.name + ": " + text);
    }
  }
  // The device is done with the buffers before the host fills them anew.
  if (in_use_) wait();
  in_use_ = false;
  if (const std::byte* mapped = weights_.mapped(t)) {
    std::memcpy(pinned_ + at, mapped + p.offset, p.bytes);
  } else {
    weights_.read(t, p.offset, std::span(pinned_ + at, p.bytes));
  }
  const Status status = components_.copy(staging, pinned_ + at, p.bytes);
  if (!status.ok()) throw Error(status.code(), status.message());
  return staging;
}

void WeightLoader::load_group(const Site& site, SiteGroup& group) {
  const bool mapped = in_place(site, group), verbatim = (group.footprint.flags & TENON_FOOTPRINT_IN_PLACE) != 0;
  for (uint32_t pass = 0; pass < passes_of(group); ++pass) {
    uint32_t mat = 0;
    for (size_t set = 0; set < site.decl.sets(); ++set) {
      for (size_t i = 0; i < group.mats.size(); ++i, ++mat) {
        const SiteMatrix& of = site.decl.mats[group.mats[i]];
        const Matrix& matrix = of.sets[set];
        newest_ = matrix.name + " by " + group.scheme->instance.id();
        if (verbatim && !mapped) {
          copy_in_place(matrix, of.rows, group, storages_[group.stores[i]].address);
        } else if (!mapped) {
          load_matrix(of, matrix, group, mat, pass);
        }
        advance(bytes_of(matrix) - reported_);
        reported_ = 0;
      }
    }
  }
}

void WeightLoader::load_matrix(const SiteMatrix& of, const Matrix& matrix, SiteGroup& group, uint32_t mat,
                               uint32_t pass) {
  std::vector<void*> stores;
  for (const uint32_t s : group.stores) stores.push_back(storages_[s].address);
  const auto rows = static_cast<uint64_t>(of.rows);
  const uint64_t step = rows_a_call(matrix, of.rows, group);
  const Instance& scheme = group.scheme->instance;
  for (uint64_t row = 0; row < rows; row += step) {
    auto src = sdk::abi_struct<tenon_rows>();
    src.mat = mat;
    src.pass = pass;
    src.row0 = row;
    src.rows = std::min(step, rows - row);
    const std::vector<Piece> pieces = pieces_of(matrix, of.rows, row, src.rows);
    const std::vector<tenon_slice> slices = stage(pieces);
    src.tensor = slices.data();
    Call call(scheme, "load " + matrix.name);
    const tenon_status status = group.scheme->table().load(scheme.self(), group.handle, &src, stores.data(), scratch_,
                                                           components_.queue(), call.why());
    try {
      call.check(status);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kPlugin) throw;
      throw Error(e.code(), {file_of(matrix, call.text())}, e.diagnostics().front().message);
    }
    release(pieces);
  }
}

std::string WeightLoader::file_of(const Matrix& matrix, std::string_view message) const {
  const WeightTensor* named = matrix.tensors.front();
  for (const WeightTensor* t : matrix.tensors) {
    if (message.find(weights::in_quotes(t->name)) != std::string_view::npos) named = t;
  }
  return weights_.files().at(named->file).string();
}

// A scheme works in place, but the file cannot be handed out as it is.
void WeightLoader::copy_in_place(const Matrix& matrix, int64_t rows, const SiteGroup& group, void* store) {
  const uint64_t step = rows_a_call(matrix, rows, group), all = static_cast<uint64_t>(rows);
  for (uint64_t row = 0; row < all; row += step) {
    const std::vector<Piece> pieces = pieces_of(matrix, rows, row, std::min(step, all - row));
    const Piece& piece = pieces.front();
    const std::vector<tenon_slice> slices = stage(pieces);
    const Status status =
        components_.copy(static_cast<std::byte*>(store) + piece.offset, slices.front().data, piece.bytes);
    if (!status.ok()) throw Error(status.code(), status.message());
    release(pieces);
  }
}

// Lets go of the bytes of pieces, which nobody reads again soon, and reports them as progress. A piece that is a whole
// tensor comes with every call, so it is kept and not reported.
void WeightLoader::release(const std::vector<Piece>& pieces) {
  for (const Piece& p : pieces) {
    if (!p.rows) continue;
    weights_.release(*p.tensor, p.offset, p.bytes);
    advance(p.bytes);
    reported_ += p.bytes;
  }
}

void WeightLoader::load_vector(const Vector& v) {
  std::vector<float> values(static_cast<size_t>(v.rows * v.columns));
  if (v.fill) v.fill(values);
  size_t at = 0;
  for (const WeightTensor* t : v.tensors) {
    std::vector<std::byte> raw(t->bytes);
    weights_.read(*t, 0, raw);
    for (size_t i = 0; i < static_cast<size_t>(t->shape[0]); ++i)
      values[at++] = value_at(t->format, raw.data(), i) + v.plus;
  }
  components_.copy_now(storages_[*v.storage].address, values.data(), values.size() * sizeof(float));
}

}  // namespace tenon
