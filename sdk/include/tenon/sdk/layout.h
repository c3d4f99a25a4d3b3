// The layout hash of each draft interface: the size of the structs that it uses, and place and size of the fields that
// stand for their order. A plugin carries it in its note, and a host whose layout differs refuses it by name instead of
// crashing. tests/unit/registry/layout_test.cc holds the values against the recorded ones, so that a change is never an
// accident.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tenon/abi/plugin.h"
#include "tenon/sdk/params.h"

namespace tenon::sdk::layout {

template <class... Offsets>
constexpr uint64_t fields(uint64_t h, size_t size, Offsets... offset) {
  h = detail::fnv(h, uint64_t{size});
  ((h = detail::fnv(h, static_cast<uint64_t>(offset))), ...);
  return h;
}

#define TENON_AT(type, field) (offsetof(type, field) << 8 | sizeof(type::field))

constexpr uint64_t base() {
  uint64_t h = detail::kFnvStart;
  h = fields(h, sizeof(tenon_head), TENON_AT(tenon_head, size), TENON_AT(tenon_head, major),
             TENON_AT(tenon_head, minor));
  h = fields(h, sizeof(tenon_reason), TENON_AT(tenon_reason, text), TENON_AT(tenon_reason, cap));
  h = fields(h, sizeof(tenon_tensor), TENON_AT(tenon_tensor, format), TENON_AT(tenon_tensor, rank),
             TENON_AT(tenon_tensor, space), TENON_AT(tenon_tensor, dim), TENON_AT(tenon_tensor, stride));
  h = fields(h, sizeof(tenon_param_spec), TENON_AT(tenon_param_spec, name), TENON_AT(tenon_param_spec, type),
             TENON_AT(tenon_param_spec, int_default), TENON_AT(tenon_param_spec, real_default),
             TENON_AT(tenon_param_spec, text_default), TENON_AT(tenon_param_spec, choices));
  h = fields(h, sizeof(tenon_params), TENON_AT(tenon_params, count), TENON_AT(tenon_params, value));
  h = fields(h, sizeof(tenon_bounds), TENON_AT(tenon_bounds, rows), TENON_AT(tenon_bounds, kv_len),
             TENON_AT(tenon_bounds, slots), TENON_AT(tenon_bounds, steps_ahead), TENON_AT(tenon_bounds, rank));
  h = fields(h, sizeof(tenon_launch), TENON_AT(tenon_launch, queue), TENON_AT(tenon_launch, ptr),
             TENON_AT(tenon_launch, scratch), TENON_AT(tenon_launch, zeroed), TENON_AT(tenon_launch, stable));
  h = fields(h, sizeof(tenon_part), TENON_AT(tenon_part, launch), TENON_AT(tenon_part, phase),
             TENON_AT(tenon_part, thread), TENON_AT(tenon_part, thread_scratch), TENON_AT(tenon_part, why));
  h = fields(h, sizeof(tenon_op), TENON_AT(tenon_op, name), TENON_AT(tenon_op, kind), TENON_AT(tenon_op, operand),
             TENON_AT(tenon_op, args), TENON_AT(tenon_op, chunks), TENON_AT(tenon_op, scratch_bytes),
             TENON_AT(tenon_op, cost), TENON_AT(tenon_op, launch), TENON_AT(tenon_op, part), TENON_AT(tenon_op, self));
  h = fields(h, sizeof(tenon_recorder), TENON_AT(tenon_recorder, bounds), TENON_AT(tenon_recorder, temp),
             TENON_AT(tenon_recorder, keep), TENON_AT(tenon_recorder, slice), TENON_AT(tenon_recorder, step),
             TENON_AT(tenon_recorder, describe), TENON_AT(tenon_recorder, emit));
  h = fields(h, sizeof(tenon_fop), TENON_AT(tenon_fop, id), TENON_AT(tenon_fop, t), TENON_AT(tenon_fop, f),
             TENON_AT(tenon_fop, i), TENON_AT(tenon_fop, ext));
  h = fields(h, sizeof(tenon_chain), TENON_AT(tenon_chain, n), TENON_AT(tenon_chain, op));
  h = fields(h, sizeof(tenon_claim), TENON_AT(tenon_claim, pro), TENON_AT(tenon_claim, epi),
             TENON_AT(tenon_claim, rank), TENON_AT(tenon_claim, variant), TENON_AT(tenon_claim, us));
  h = fields(h, sizeof(tenon_footprint), TENON_AT(tenon_footprint, n_stores), TENON_AT(tenon_footprint, flags),
             TENON_AT(tenon_footprint, store_bytes), TENON_AT(tenon_footprint, load_bytes));
  h = fields(h, sizeof(tenon_host), TENON_AT(tenon_host, ctx), TENON_AT(tenon_host, alloc), TENON_AT(tenon_host, log));
  h = fields(h, sizeof(tenon_component), TENON_AT(tenon_component, kind), TENON_AT(tenon_component, schema),
             TENON_AT(tenon_component, create), TENON_AT(tenon_component, interface));
  h = fields(h, sizeof(tenon_env), TENON_AT(tenon_env, device), TENON_AT(tenon_env, ordinal));
  return fields(h, sizeof(tenon_device), TENON_AT(tenon_device, kind), TENON_AT(tenon_device, ordinal),
                TENON_AT(tenon_device, memory), TENON_AT(tenon_device, isa), TENON_AT(tenon_device, alloc),
                TENON_AT(tenon_device, copy), TENON_AT(tenon_device, record_fop), TENON_AT(tenon_device, generate),
                TENON_AT(tenon_device, read_rate));
}

constexpr uint64_t kv_format(uint64_t h) {
  h = fields(h, sizeof(tenon_kv_plane), TENON_AT(tenon_kv_plane, codec), TENON_AT(tenon_kv_plane, rotated));
  h = fields(h, sizeof(tenon_kv_format), TENON_AT(tenon_kv_format, k), TENON_AT(tenon_kv_format, v),
             TENON_AT(tenon_kv_format, ext));
  return fields(h, sizeof(tenon_kv_view), TENON_AT(tenon_kv_view, format), TENON_AT(tenon_kv_view, heads),
                TENON_AT(tenon_kv_view, page_tokens), TENON_AT(tenon_kv_view, sink_page), TENON_AT(tenon_kv_view, k),
                TENON_AT(tenon_kv_view, pages), TENON_AT(tenon_kv_view, k_stride), TENON_AT(tenon_kv_view, group));
}

constexpr uint64_t quantization() {
  uint64_t h = base();
  h = fields(h, sizeof(tenon_linear), TENON_AT(tenon_linear, path), TENON_AT(tenon_linear, n_mats),
             TENON_AT(tenon_linear, out_dim), TENON_AT(tenon_linear, source), TENON_AT(tenon_linear, in_dim),
             TENON_AT(tenon_linear, rows_wanted), TENON_AT(tenon_linear, pro));
  h = fields(h, sizeof(tenon_linear_call), TENON_AT(tenon_linear_call, x), TENON_AT(tenon_linear_call, store),
             TENON_AT(tenon_linear_call, row_live), TENON_AT(tenon_linear_call, pro),
             TENON_AT(tenon_linear_call, claim));
  h = fields(h, sizeof(tenon_rows), TENON_AT(tenon_rows, mat), TENON_AT(tenon_rows, format), TENON_AT(tenon_rows, row0),
             TENON_AT(tenon_rows, data));
  return fields(h, sizeof(tenon_quantization), TENON_AT(tenon_quantization, row_invariant_max),
                TENON_AT(tenon_quantization, claim), TENON_AT(tenon_quantization, bind),
                TENON_AT(tenon_quantization, footprint), TENON_AT(tenon_quantization, load),
                TENON_AT(tenon_quantization, record), TENON_AT(tenon_quantization, record_rows));
}

constexpr uint64_t kv_cache() {
  uint64_t h = kv_format(base());
  h = fields(h, sizeof(tenon_kv_geometry), TENON_AT(tenon_kv_geometry, layer), TENON_AT(tenon_kv_geometry, window));
  return fields(h, sizeof(tenon_kv_cache), TENON_AT(tenon_kv_cache, claim), TENON_AT(tenon_kv_cache, plan),
                TENON_AT(tenon_kv_cache, view), TENON_AT(tenon_kv_cache, record_append),
                TENON_AT(tenon_kv_cache, record_commit), TENON_AT(tenon_kv_cache, reserve),
                TENON_AT(tenon_kv_cache, publish), TENON_AT(tenon_kv_cache, export_sequence),
                TENON_AT(tenon_kv_cache, used_bytes), TENON_AT(tenon_kv_cache, format));
}

constexpr uint64_t attention() {
  uint64_t h = kv_format(base());
  h = fields(h, sizeof(tenon_attn), TENON_AT(tenon_attn, layer), TENON_AT(tenon_attn, window),
             TENON_AT(tenon_attn, scale), TENON_AT(tenon_attn, pro));
  h = fields(h, sizeof(tenon_attn_call), TENON_AT(tenon_attn_call, q), TENON_AT(tenon_attn_call, plan),
             TENON_AT(tenon_attn_call, kv), TENON_AT(tenon_attn_call, claim));
  return fields(h, sizeof(tenon_attention), TENON_AT(tenon_attention, row_invariant_max),
                TENON_AT(tenon_attention, claim), TENON_AT(tenon_attention, record_plan),
                TENON_AT(tenon_attention, record), TENON_AT(tenon_attention, preferred_format));
}

constexpr uint64_t sampler() {
  uint64_t h = base();
  h = fields(h, sizeof(tenon_candidates), TENON_AT(tenon_candidates, form), TENON_AT(tenon_candidates, logits),
             TENON_AT(tenon_candidates, count));
  return fields(h, sizeof(tenon_sampler), TENON_AT(tenon_sampler, in_forms), TENON_AT(tenon_sampler, param_bytes),
                TENON_AT(tenon_sampler, state_bytes), TENON_AT(tenon_sampler, encode),
                TENON_AT(tenon_sampler, record_apply), TENON_AT(tenon_sampler, record_select),
                TENON_AT(tenon_sampler, record_verify), TENON_AT(tenon_sampler, record_accept));
}

constexpr uint64_t draft() {
  uint64_t h = sampler();
  h = fields(h, sizeof(tenon_draft_call), TENON_AT(tenon_draft_call, history),
             TENON_AT(tenon_draft_call, probabilities));
  return fields(h, sizeof(tenon_draft), TENON_AT(tenon_draft, flags), TENON_AT(tenon_draft, max_tokens),
                TENON_AT(tenon_draft, propose), TENON_AT(tenon_draft, forget), TENON_AT(tenon_draft, record_propose));
}

#undef TENON_AT

// 0 for a kind that does not cross the boundary.
constexpr uint64_t of(std::string_view kind) {
  if (kind == "device") return base();
  if (kind == "quantization") return quantization();
  if (kind == "kv_cache") return kv_cache();
  if (kind == "attention") return attention();
  if (kind == "sampler") return sampler();
  if (kind == "draft") return draft();
  return 0;
}

}  // namespace tenon::sdk::layout
