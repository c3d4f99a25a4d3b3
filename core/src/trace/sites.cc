#include "tenon/core/trace.h"

namespace tenon::trace {

SiteInfo step_site(std::string_view phase) {
  return {.kind = SiteKind::kSpan,
          .name = "ProfilerStep#",
          .category = "user_annotation",
          .args = {{"phase", std::string(phase)}},
          .values = {"step", "n_ctx_req", "n_ctx_tok", "n_gen_req", "n_gen_tok", "drafted", "accepted"},
          .text = "tokens",
          .numbered = true};
}

SiteInfo section_site(std::string_view name) {
  return {.kind = SiteKind::kSpan, .name = std::string(name), .category = "user_annotation"};
}

SiteInfo draft_site(std::string_view component) {
  return {.kind = SiteKind::kSpan,
          .name = "draft",
          .category = "user_annotation",
          .args = {{"component", std::string(component)}},
          .values = {"proposed"}};
}

SiteInfo op_site(std::string_view module_path, std::string_view component, std::string_view op, int64_t layer) {
  SiteInfo site{.kind = SiteKind::kSpan,
                .name = std::string(module_path),
                .category = "cpu_op",
                .args = {{"component", std::string(component)}, {"op", std::string(op)}},
                .values = {"bytes_read", "bytes_written", "flops"}};
  if (layer >= 0) site.args.push_back({"layer", layer});
  return site;
}

SiteInfo counter_site(std::string_view name) {
  return {.kind = SiteKind::kCounter, .name = std::string(name), .category = "counter"};
}

SiteInfo request_site() {
  return {.kind = SiteKind::kRequest, .name = "req ", .category = "request", .numbered = true};
}

}  // namespace tenon::trace
