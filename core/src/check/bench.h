// A host for one component: enough to create it and to ask what needs no program.
#pragma once

#include <memory>
#include <set>

#include "check/checks.h"
#include "registry/library.h"
#include "tenon/core/params.h"
#include "tenon/core/registry.h"

namespace tenon {

class Bench {
 public:
  // Opens the library; it is closed again with the bench. Throws Error(kPlugin).
  explicit Bench(const Subject& subject);
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  const tenon_component& component() const { return *loaded_.component; }
  // At the defaults; required texts and numbers at something that they allow.
  ParamValues values() const;
  // Throws Error(kPlugin) with the component's reason.
  Instance create(const ParamValues& values) const { return Instance(loaded_, *values.abi(), env_); }
  const tenon_env& env() const { return env_; }
  void refuse_memory(bool refuse) { refuse_ = refuse; }

 private:
  static tenon_status alloc(void* ctx, uint32_t, uint64_t bytes, const char*, void** out, tenon_reason* why);
  static void release(void* ctx, void* p);

  Library library_;
  LoadedComponent loaded_;
  tenon_host host_{};
  tenon_device device_{};
  tenon_env env_{};
  std::set<void*> memory_;
  bool refuse_ = false;
};

}  // namespace tenon
