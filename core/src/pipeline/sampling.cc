#include "sampling.h"

#include "tenon/core/error.h"

namespace tenon {
namespace {

std::byte* record_of(const StorageTable& storages, uint32_t storage, uint32_t slot, uint64_t bytes) {
  return static_cast<std::byte*>(storages[storage].address) + slot * bytes;
}

}  // namespace

std::vector<ChainLink> create_samplers(const PipelineConfig& config, Context& context) {
  std::vector<ChainLink> samplers;
  for (const ComponentConfig& link : config.sampler_chain) {
    samplers.push_back({.instance = context.create(link), .name = link.name, .params = link.params});
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

void declare_samplers(std::vector<ChainLink>& samplers, uint32_t slots, uint32_t vocab, StorageTable& storages) {
  for (size_t i = 0; i < samplers.size(); ++i) {
    ChainLink& link = samplers[i];
    const std::string name = "sampler/" + std::to_string(i) + "." + link.name;
    link.state_bytes = link.table().state_bytes != nullptr ? link.table().state_bytes(link.instance.self(), vocab) : 0;
    link.param_storage = storages.add(name + "/params", MemoryKind::kState, uint64_t{slots} * link.table().param_bytes);
    if (link.state_bytes > 0) {
      link.state_storage = storages.add(name + "/state", MemoryKind::kState, uint64_t{slots} * link.state_bytes);
    }
  }
}

uint64_t staged_bytes(const std::vector<ChainLink>& samplers) {
  uint64_t bytes = 0;
  for (const ChainLink& link : samplers) bytes += link.table().param_bytes;
  return bytes;
}

void start_samplers(std::vector<ChainLink>& samplers, StartedSlot at, std::span<const Pipeline::Override> overrides,
                    const StorageTable& storages, const Context& context) {
  auto [slot, staged] = at;
  std::vector<bool> used(overrides.size(), false);
  std::vector<std::byte> record;
  for (ChainLink& link : samplers) {
    ParamValues values = link.params;
    for (size_t i = 0; i < overrides.size(); ++i) {
      if (!overrides[i].first.starts_with(link.name + ".")) continue;
      const std::string key = overrides[i].first.substr(link.name.size() + 1);
      if (key.find('.') != key.npos) continue;  // it belongs to another link, whose name begins like this one's
      const size_t index = find_param(values.schema(), key);
      const std::string problem =
          index == values.schema().count
              ? "has no parameter of that name"
              : values.set(index, value_from_text(spec_at(values.schema(), index), overrides[i].second));
      if (!problem.empty()) throw Error(ErrorCode::kRequest, "sampler." + overrides[i].first + ": " + problem);
      used[i] = true;
    }
    record.assign(link.table().param_bytes, std::byte{0});
    Call call(link.instance, "encode");
    call.check(link.table().encode(link.instance.self(), values.abi(), record.data(), call.why()));
    context.copy_staged(record_of(storages, link.param_storage, slot, record.size()), record.data(), record.size(),
                        staged);
    if (staged != nullptr) staged += record.size();
    if (link.state_bytes > 0) {
      context.copy_staged(record_of(storages, link.state_storage, slot, link.state_bytes), nullptr, link.state_bytes,
                          nullptr);
    }
  }
  for (size_t i = 0; i < overrides.size(); ++i) {
    if (!used[i]) throw Error(ErrorCode::kRequest, "sampler." + overrides[i].first + ": the chain has no such sampler");
  }
}

}  // namespace tenon
