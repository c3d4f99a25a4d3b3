// This is written without the SDK's guard: when the host has no memory, an exception crosses the boundary.
#include <new>

#include "altered.h"

namespace {

tenon_status create(const tenon_params* params, const tenon_env* env, void** self, tenon_reason* why) {
  void* piece = nullptr;
  if (env->host->alloc(env->host->ctx, TENON_SPACE_HOST, 100, "tables", &piece, why) != TENON_OK)
    throw std::bad_alloc();
  env->host->release(env->host->ctx, piece);
  return tenon::sdk::detail::component<tenon::bad::Good>().create(params, env, self, why);
}

}  // namespace

TENON_ALTERED_PLUGIN(it.component.create = &create;);
