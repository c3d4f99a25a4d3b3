#include "weight_loader.h"

#include <algorithm>
#include <cstring>

#include "tenon/core/error.h"
#include "tenon/sdk/cpu/convert.h"
#include "tenon/sdk/error.h"

namespace tenon {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{4} << 20;  // of a source at a time: progress moves, scratch stays small

uint64_t aligned(uint64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

float value_at(tenon_format format, const std::byte* data, size_t i) {
  if (format == TENON_F32) {
    float f = 0;
    std::memcpy(&f, data + i * sizeof(f), sizeof(f));
    return f;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, data + i * sizeof(bits), sizeof(bits));
  return format == TENON_F16 ? sdk::cpu::half_to_float(bits) : sdk::cpu::bf16_to_float(bits);
}

}  // namespace

uint64_t WeightLoader::rows_a_chunk(const WeightTensor& t) const {
  const uint64_t row_bytes = t.bytes / static_cast<uint64_t>(t.shape[0]);
  return std::max<uint64_t>(1, std::min<uint64_t>(static_cast<uint64_t>(t.shape[0]), kChunkBytes / row_bytes));
}

bool WeightLoader::in_place(const Site& site, const SiteGroup& group) const {
  return (group.footprint.flags & TENON_FOOTPRINT_IN_PLACE) != 0 &&
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
      load_bytes_ = std::max(load_bytes_, aligned(group.footprint.load_bytes));
      for (const size_t m : group.mats) {
        const WeightTensor& t = *site.decl.mats[m].source;
        if (weights_.mapped(t) != nullptr) continue;
        const uint64_t row_bytes = t.bytes / static_cast<uint64_t>(t.shape[0]);
        staging_bytes_ = std::max(staging_bytes_, aligned(rows_a_chunk(t) * row_bytes));
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

void WeightLoader::load(const tenon_device& device, std::byte* scratch, const LoadProgress& progress) {
  progress_ = progress;
  done_ = 0;
  total_ = total_bytes();
  for (const Vector& v : declared_.vectors) load_vector(device, v);
  for (Site& site : declared_.sites) {
    for (SiteGroup& group : site.groups) load_group(device, site, group, scratch);
  }
}

void WeightLoader::load_group(const tenon_device& device, const Site& site, SiteGroup& group, std::byte* scratch) {
  const Instance& scheme = group.scheme->instance;
  std::vector<void*> stores;
  for (const uint32_t s : group.stores) stores.push_back(storages_[s].address);
  const bool verbatim = (group.footprint.flags & TENON_FOOTPRINT_IN_PLACE) != 0;
  std::byte* staging = scratch + load_bytes_;
  for (size_t i = 0; i < group.mats.size(); ++i) {
    const WeightTensor& t = *site.decl.mats[group.mats[i]].source;
    const std::byte* mapped = weights_.mapped(t);
    if (storages_[group.stores[std::min(i, group.stores.size() - 1)]].kind == MemoryKind::kMapped) {
      advance(t.bytes);
      continue;
    }
    const auto rows = static_cast<uint64_t>(t.shape[0]);
    const uint64_t row_bytes = t.bytes / rows, step = rows_a_chunk(t);
    for (uint64_t row = 0; row < rows; row += step) {
      auto src = sdk::abi_struct<tenon_rows>();
      src.mat = static_cast<uint32_t>(i);
      src.format = t.format;
      src.row0 = row, src.rows = std::min(step, rows - row);
      src.bytes = src.rows * row_bytes;
      src.data = mapped != nullptr ? mapped + row * row_bytes : staging;
      if (mapped == nullptr) weights_.read(t, row * row_bytes, std::span(staging, src.bytes));
      if (verbatim) {
        device.copy(device.self, nullptr, static_cast<std::byte*>(stores[i]) + row * row_bytes, src.data, src.bytes,
                    nullptr);
      } else {
        Call call(scheme, "load " + t.name);
        call.check(
            group.scheme->table().load(scheme.self(), group.handle, &src, stores.data(), scratch, nullptr, call.why()));
      }
      advance(src.bytes);
    }
  }
}

void WeightLoader::load_vector(const tenon_device& device, const Vector& v) {
  std::vector<float> values(static_cast<size_t>(v.rows * v.columns));
  if (v.fill) v.fill(values);
  size_t at = 0;
  for (const WeightTensor* t : v.parts) {
    std::vector<std::byte> raw(t->bytes);
    weights_.read(*t, 0, raw);
    for (size_t i = 0; i < static_cast<size_t>(t->shape[0]); ++i) values[at++] = value_at(t->format, raw.data(), i);
  }
  device.copy(device.self, nullptr, storages_[v.storage].address, values.data(), values.size() * sizeof(float),
              nullptr);
}

}  // namespace tenon
