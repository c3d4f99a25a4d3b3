// The components that a model instance is stored and computed with.
#pragma once

#include <string>
#include <vector>

#include "context.h"

namespace tenon {

// A quantization scheme and the modules that it is for.
struct Scheme {
  std::string match;  // glob over module paths; "" = all
  Instance instance;  // none for "auto": each matrix gets one of the installed schemes
  const tenon_quantization& table() const { return instance.table<tenon_quantization>(); }
};

// Instances in the order of creation; they are destroyed in reverse.
struct Components {
  Components(const ModelInstanceConfig& config, Context& on);

  const tenon_device& device() const { return context.device(); }
  bool queues() const { return context.queues(); }
  void* queue() const { return context.queue(); }
  Status copy(void* dst, const void* src, uint64_t bytes) const { return context.copy(dst, src, bytes); }
  void copy_now(void* dst, const void* src, uint64_t bytes) const { context.copy_now(dst, src, bytes); }
  const Scheme& scheme_for(const std::string& matrix, const std::string& site) const;
  // All schemes that are installed for the device, as they are when nothing is stated, by name; made when first asked
  // for. One that cannot be made so is not among them.
  const std::vector<Scheme>& installed_schemes();

  Context& context;
  std::vector<Scheme> schemes;  // the default first, then overrides in their order; the last that matches holds
  Instance kv_cache, attention;

 private:
  std::vector<Scheme> installed_;
};

}  // namespace tenon
