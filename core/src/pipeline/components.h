// A model instance is stored and computed with these components.
#pragma once

#include <string>
#include <vector>

#include "context.h"

namespace tenon {

// A quantization scheme serves the modules that `match` names.
struct Scheme {
  std::string match;  // a glob over module paths; "" = all
  Instance instance;  // there is none for "auto": each matrix gets an installed scheme
  const tenon_quantization& table() const { return instance.table<tenon_quantization>(); }
};

// The instances stand in the order of their creation, and are destroyed in reverse.
struct Components {
  Components(const ModelInstanceConfig& config, Context& on);

  const tenon_device& device() const { return context.device(); }
  bool queues() const { return context.queues(); }
  void* queue() const { return context.queue(); }
  Status copy(void* dst, const void* src, uint64_t bytes) const { return context.copy(dst, src, bytes); }
  void copy_now(void* dst, const void* src, uint64_t bytes) const { context.copy_now(dst, src, bytes); }
  const Scheme& scheme_for(const std::string& matrix, const std::string& site) const;
  // Returns all schemes that are installed for the device, with default parameters, sorted by name; they are made when
  // first asked for. A scheme that cannot be made so is not among them.
  const std::vector<Scheme>& installed_schemes();

  Context& context;
  std::vector<Scheme> schemes;  // the default first, then overrides in their order; the last one that matches holds
  Instance kv_cache, attention;

 private:
  std::vector<Scheme> installed_;
};

}  // namespace tenon
