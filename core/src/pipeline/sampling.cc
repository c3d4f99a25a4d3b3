#include "sampling.h"

#include "tenon/core/error.h"

namespace tenon {
namespace {

std::byte* record_of(const StorageTable& storages, uint32_t storage, uint32_t slot, uint64_t bytes) {
  return static_cast<std::byte*>(storages[storage].address) + slot * bytes;
}

}  // namespace

std::vector<ChainEntry> create_samplers(const PipelineConfig& config, Context& context) {
  std::vector<ChainEntry> samplers;
  for (const ComponentConfig& entry : config.sampler_chain) {
    samplers.push_back({.instance = context.create(entry), .name = entry.name, .params = entry.params});
  }
  if (samplers.empty() || samplers.back().table().is_selector == 0) {
    const ComponentConfig& select = config.sampler_select;
    samplers.push_back({.instance = context.create(select), .name = select.name, .params = select.params});
  }
  for (size_t i = 0; i < samplers.size(); ++i) {
    const bool last = i + 1 == samplers.size();
    if ((samplers[i].table().is_selector != 0) != last) {
      throw Error(ErrorCode::kConfig, config.sampler_where,
                  samplers[i].instance.id() + (last ? " selects no token; the sampler's select must name one that does"
                                                    : " selects the token and must be the last of the chain"));
    }
  }
  return samplers;
}

void declare_samplers(std::vector<ChainEntry>& samplers, uint32_t slots, uint32_t vocab, StorageTable& storages) {
  for (size_t i = 0; i < samplers.size(); ++i) {
    ChainEntry& entry = samplers[i];
    const std::string name = "sampler/" + std::to_string(i) + "." + entry.name;
    entry.state_bytes =
        entry.table().state_bytes != nullptr ? entry.table().state_bytes(entry.instance.self(), vocab) : 0;
    entry.param_storage =
        storages.add(name + "/params", MemoryKind::kState, uint64_t{slots} * entry.table().param_bytes);
    if (entry.state_bytes > 0) {
      entry.state_storage = storages.add(name + "/state", MemoryKind::kState, uint64_t{slots} * entry.state_bytes);
    }
  }
}

uint64_t staged_bytes(const std::vector<ChainEntry>& samplers) {
  uint64_t bytes = 0;
  for (const ChainEntry& entry : samplers) bytes += entry.table().param_bytes;
  return bytes;
}

void start_samplers(std::vector<ChainEntry>& samplers, StartedSlot at, std::span<const Pipeline::Override> overrides,
                    const StorageTable& storages, const Context& context) {
  auto [slot, staged] = at;
  std::vector<bool> used(overrides.size(), false);
  std::vector<std::byte> record;
  for (ChainEntry& entry : samplers) {
    ParamValues values = entry.params;
    for (size_t i = 0; i < overrides.size(); ++i) {
      if (!overrides[i].first.starts_with(entry.name + ".")) continue;
      const std::string key = overrides[i].first.substr(entry.name.size() + 1);
      if (key.find('.') != key.npos) continue;  // it belongs to another entry, whose name begins like this one's
      const size_t index = find_param(values.schema(), key);
      const std::string problem =
          index == values.schema().count
              ? "has no parameter of that name"
              : values.set(index, value_from_text(spec_at(values.schema(), index), overrides[i].second));
      if (!problem.empty()) throw Error(ErrorCode::kRequest, "sampler." + overrides[i].first + ": " + problem);
      used[i] = true;
    }
    record.assign(entry.table().param_bytes, std::byte{0});
    Call call(entry.instance, "encode");
    call.check(entry.table().encode(entry.instance.self(), values.abi(), record.data(), call.why()));
    context.copy_staged(record_of(storages, entry.param_storage, slot, record.size()), record.data(), record.size(),
                        staged);
    if (staged != nullptr) staged += record.size();
    if (entry.state_bytes > 0) {
      context.copy_staged(record_of(storages, entry.state_storage, slot, entry.state_bytes), nullptr, entry.state_bytes,
                          nullptr);
    }
  }
  for (size_t i = 0; i < overrides.size(); ++i) {
    if (!used[i]) throw Error(ErrorCode::kRequest, "sampler." + overrides[i].first + ": the chain has no such sampler");
  }
}

}  // namespace tenon
