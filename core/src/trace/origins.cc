#include "tenon/core/trace.h"

namespace tenon::trace {

OriginInfo step_origin(std::string_view phase) {
  return {.kind = OriginKind::kSpan,
          .name = "ProfilerStep#",
          .category = "user_annotation",
          .args = {{"phase", std::string(phase)}},
          .values = {"step", "n_ctx_req", "n_ctx_tok", "n_gen_req", "n_gen_tok", "drafted", "accepted"},
          .text = "tokens",
          .numbered = true};
}

OriginInfo section_origin(std::string_view name) {
  return {.kind = OriginKind::kSpan, .name = std::string(name), .category = "user_annotation"};
}

OriginInfo draft_origin(std::string_view component) {
  return {.kind = OriginKind::kSpan,
          .name = "draft",
          .category = "user_annotation",
          .args = {{"component", std::string(component)}},
          .values = {"proposed"}};
}

OriginInfo op_origin(std::string_view module_path, std::string_view component, std::string_view op, int64_t layer) {
  OriginInfo origin{.kind = OriginKind::kSpan,
                    .name = std::string(module_path),
                    .category = "cpu_op",
                    .args = {{"component", std::string(component)}, {"op", std::string(op)}},
                    .values = {"bytes_read", "bytes_written", "flops"}};
  if (layer >= 0) origin.args.push_back({"layer", layer});
  return origin;
}

OriginInfo counter_origin(std::string_view name) {
  return {.kind = OriginKind::kCounter, .name = std::string(name), .category = "counter"};
}

OriginInfo request_origin() {
  return {.kind = OriginKind::kRequest, .name = "req ", .category = "request", .numbered = true};
}

}  // namespace tenon::trace
