#include "weight_loader.h"

#include <algorithm>
#include <cstring>

#include "tenon/core/error.h"
#include "tenon/sdk/convert.h"
#include "tenon/sdk/error.h"

namespace tenon {
namespace {

// Of a source at a time: progress moves, scratch stays small. Devices with queues take more, to have their copies pay.
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

}  // namespace

uint64_t WeightLoader::rows_a_chunk(const WeightTensor& t) const {
  const uint64_t row_bytes = t.bytes / static_cast<uint64_t>(t.shape[0]);
  return std::max<uint64_t>(1, std::min<uint64_t>(static_cast<uint64_t>(t.shape[0]),
                                                  (parts_.queues() ? kQueueChunkBytes : kChunkBytes) / row_bytes));
}

bool WeightLoader::in_place(const Site& site, const SiteGroup& group) const {
  return !parts_.queues() && (group.footprint.flags & TENON_FOOTPRINT_IN_PLACE) != 0 &&
         std::all_of(group.mats.begin(), group.mats.end(),
                     [&](size_t m) { return weights_.mapped(*site.decl.mats[m].source) != nullptr; });
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
        const WeightTensor& t = *site.decl.mats[m].source;
        if (weights_.mapped(t) != nullptr && !parts_.queues()) continue;
        const uint64_t row_bytes = t.bytes / static_cast<uint64_t>(t.shape[0]);
        staging_bytes_ = std::max(staging_bytes_, align(rows_a_chunk(t) * row_bytes));
      }
    }
  }
}

uint64_t WeightLoader::total_bytes() const {
  uint64_t sum = 0;
  for (const Site& site : declared_.sites) {
    for (const Matrix& m : site.decl.mats) sum += m.source->bytes;
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
  if (parts_.queues()) {
    pinned_ = static_cast<std::byte*>(
        parts_.context.memory().alloc(TENON_SPACE_HOST, kBuffers * staging_bytes_, "weights on their way"));
  }
  for (const Vector& v : declared_.vectors) {
    if (v.storage) load_vector(v);
  }
  for (Site& site : declared_.sites) {
    for (SiteGroup& group : site.groups) load_group(site, group);
  }
  wait();
  parts_.context.memory().release(pinned_);
}

void WeightLoader::wait() {
  if (!parts_.queues()) return;
  const tenon_device& device = parts_.device();
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (device.wait(device.self, parts_.queue(), &why) != TENON_OK) {
    throw Error(ErrorCode::kPlugin, "a kernel failed on device." + std::string(device.kind) + ": " + text +
                                        ", while weights were loaded, up to " + newest_);
  }
}

const void* WeightLoader::stage(const WeightTensor& t, uint64_t offset, uint64_t bytes) {
  if (parts_.queues()) return stage_on_device(t, offset, bytes);
  if (const std::byte* mapped = weights_.mapped(t)) return mapped + offset;
  std::byte* staging = scratch_ + load_bytes_;
  weights_.read(t, offset, std::span(staging, bytes));
  return staging;
}

const void* WeightLoader::stage_on_device(const WeightTensor& t, uint64_t offset, uint64_t bytes) {
  const uint64_t buffer = staged_++ % kBuffers * staging_bytes_;
  std::byte* staging = scratch_ + load_bytes_ + buffer;
  const tenon_device& device = parts_.device();
  if (device.generate != nullptr) {
    if (const std::optional<tenon_generated> made = weights_.generated(t, offset, bytes)) {
      char text[256] = "";
      tenon_reason why{text, sizeof(text)};
      if (device.generate(device.self, parts_.queue(), staging, &*made, &why) == TENON_OK) return staging;
      throw Error(ErrorCode::kPlugin, std::string("device.") + device.kind + ": making up " + t.name + ": " + text);
    }
  }
  // What went through the buffers before is done when they are used anew.
  if (buffer == 0) wait();
  if (const std::byte* mapped = weights_.mapped(t)) {
    std::memcpy(pinned_ + buffer, mapped + offset, bytes);
  } else {
    weights_.read(t, offset, std::span(pinned_ + buffer, bytes));
  }
  const Status status = parts_.copy(staging, pinned_ + buffer, bytes);
  if (!status.ok()) throw Error(status.code(), status.message());
  return staging;
}

void WeightLoader::load_group(const Site& site, SiteGroup& group) {
  const Instance& scheme = group.scheme->instance;
  std::vector<void*> stores;
  for (const uint32_t s : group.stores) stores.push_back(storages_[s].address);
  const bool verbatim = (group.footprint.flags & TENON_FOOTPRINT_IN_PLACE) != 0;
  for (size_t i = 0; i < group.mats.size(); ++i) {
    const WeightTensor& t = *site.decl.mats[group.mats[i]].source;
    if (storages_[group.stores[std::min(i, group.stores.size() - 1)]].kind == MemoryKind::kMapped) {
      advance(t.bytes);
      continue;
    }
    newest_ = t.name + " by " + scheme.id();
    const auto rows = static_cast<uint64_t>(t.shape[0]);
    const uint64_t row_bytes = t.bytes / rows, step = rows_a_chunk(t);
    for (uint64_t row = 0; row < rows; row += step) {
      auto src = sdk::abi_struct<tenon_rows>();
      src.mat = static_cast<uint32_t>(i);
      src.format = t.format;
      src.row0 = row, src.rows = std::min(step, rows - row);
      src.bytes = src.rows * row_bytes;
      src.data = stage(t, row * row_bytes, src.bytes);
      if (verbatim) {
        const Status status = parts_.copy(static_cast<std::byte*>(stores[i]) + row * row_bytes, src.data, src.bytes);
        if (!status.ok()) throw Error(status.code(), status.message());
      } else {
        Call call(scheme, "load " + t.name);
        call.check(group.scheme->table().load(scheme.self(), group.handle, &src, stores.data(), scratch_,
                                              parts_.queue(), call.why()));
      }
      weights_.release(t, row * row_bytes, src.bytes);
      advance(src.bytes);
    }
  }
}

void WeightLoader::load_vector(const Vector& v) {
  std::vector<float> values(static_cast<size_t>(v.rows * v.columns));
  if (v.fill) v.fill(values);
  size_t at = 0;
  for (const WeightTensor* t : v.parts) {
    std::vector<std::byte> raw(t->bytes);
    weights_.read(*t, 0, raw);
    for (size_t i = 0; i < static_cast<size_t>(t->shape[0]); ++i) values[at++] = value_at(t->format, raw.data(), i);
  }
  parts_.copy_now(storages_[*v.storage].address, values.data(), values.size() * sizeof(float));
}

}  // namespace tenon
