// A bench is a host for one component: enough to create it and to ask what needs no program.
#pragma once

#include <map>
#include <memory>

#include "check/checks.h"
#include "registry/library.h"
#include "tenon/core/plugin_check.h"
#include "tenon/core/registry.h"

namespace tenon {

class Bench {
 public:
  // Opens the library; it is closed again with the bench. Throws Error(kPlugin), or NotTested where the component's
  // device is not here.
  explicit Bench(const Subject& subject);
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  const tenon_component& component() const { return *loaded_.component; }
  ParamValues values() const { return example_values(*loaded_.schema); }
  // Throws Error(kPlugin) with the component's reason.
  Instance create(const ParamValues& values) const { return create(*values.abi(), env_); }
  Instance create(const tenon_params& params, const tenon_env& env) const { return Instance(loaded_, params, env); }
  const tenon_env& env() const { return env_; }
  // Lets the host give so many pieces of memory from now on, and then no more.
  void give_memory(uint64_t pieces) {
    left_ = pieces;
    refused_ = false;
  }
  bool refused_memory() const { return refused_; }
  size_t memory_in_use() const { return memory_.size(); }  // pieces

 private:
  static tenon_status alloc(void* ctx, uint32_t, uint64_t bytes, const char*, void** out, tenon_reason* why);
  static void release(void* ctx, void* p);

  void find_device(const Subject& subject);

  Library library_;
  LoadedComponent loaded_;
  Registry devices_;
  Instance made_device_;  // a component for another device than the CPU needs it
  tenon_host host_{};
  tenon_device device_{};
  tenon_env env_{};
  struct Piece {
    uint64_t bytes;
    uint32_t space;
  };
  std::map<void*, Piece> memory_;
  uint64_t left_ = UINT64_MAX;
  bool refused_ = false;
};

}  // namespace tenon
