#include "tenon/core/error.h"
#include "tenon/core/program.h"

namespace tenon {

const char* to_string(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kWeights:
      return "weights";
    case MemoryKind::kMapped:
      return "weights, mapped";
    case MemoryKind::kKvCache:
      return "kv cache";
    case MemoryKind::kTables:
      return "tables";
    case MemoryKind::kState:
      return "state";
    case MemoryKind::kActivations:
      return "activations";
    case MemoryKind::kWorkspace:
      return "workspace";
    case MemoryKind::kPinned:
      return "pinned, in the host";
  }
  return "unknown";
}

uint32_t StorageTable::add(const std::string& own_name, MemoryKind kind, uint64_t bytes) {
  const std::string name = prefix_ + own_name;
  const auto [it, inserted] = by_name_.try_emplace(name, static_cast<uint32_t>(storages_.size()));
  if (inserted) {
    storages_.push_back({name, kind, bytes, nullptr});
  } else if (storages_[it->second].bytes != bytes) {
    throw Error(ErrorCode::kInternal, "storage \"" + name + "\" has " + std::to_string(storages_[it->second].bytes) +
                                          " bytes and is asked for with " + std::to_string(bytes));
  }
  return it->second;
}

}  // namespace tenon
