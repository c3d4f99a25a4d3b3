#include "report.h"

#include <fstream>
#include <sstream>

namespace tenon::app {

MemoryUse memory_use(const Pipeline& pipeline) {
  MemoryUse use{.planned = pipeline.plan().peak(), .allocated = pipeline.high_water(), .resident = 0};
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) use.resident = std::stoull(line.substr(6)) * 1024;
  }
  return use;
}

double per_second(double count, double seconds) {
  return seconds > 0 ? count / seconds : 0;
}

double decode_gbps(const RunStats& s) {
  return per_second(s.decode_weight_bytes + s.decode_kv_bytes, s.decode_seconds) / 1e9;
}

boost::json::object to_json(const RunStats& s) {
  return {{"prompt_tokens", s.prompt_tokens},
          {"reused_tokens", s.reused},
          {"prompt_seconds", s.prompt_seconds},
          {"prompt_tok_per_s", per_second(static_cast<double>(s.prompt_tokens), s.prompt_seconds)},
          {"new_tokens", s.new_tokens},
          {"decode_seconds", s.decode_seconds},
          {"decode_tok_per_s", per_second(static_cast<double>(s.decode_tokens), s.decode_seconds)},
          {"decode_gbps", decode_gbps(s)},
          {"steps", s.steps},
          {"rested", s.rested},
          {"drafted", s.drafted},
          {"accepted", s.accepted}};
}

boost::json::object to_json(const MemoryUse& m) {
  return {{"planned_bytes", m.planned}, {"allocated_bytes", m.allocated}, {"resident_bytes", m.resident}};
}

std::string decision_line(const Decision& d) {
  const std::string count = d.count > 1 ? " (" + std::to_string(d.count) + ")" : "";
  return d.path + count + ": " + d.text;
}

boost::json::object to_json(const MemoryPlan& plan) {
  boost::json::object kinds;
  for (size_t k = 0; k < kMemoryKinds; ++k) kinds[to_string(static_cast<MemoryKind>(k))] = plan.bytes[k];
  return {{"bytes", kinds},
          {"load_scratch", plan.load_scratch},
          {"peak", plan.peak()},
          {"session_copy", plan.session_copy},
          {"device_memory", plan.device_memory},
          {"limit", plan.limit}};
}

std::vector<std::string> reproducing_words(const Engine& engine, const std::string& command, const PipelineArgs& args) {
  const PipelineConfig& config = engine.config();
  std::vector<std::string> words = {"tenon", command, config.model.path};
  PipelineConfig base = engine.default_config();
  base.model.path = config.model.path;
  base.trace = config.trace;
  for (const std::string& word : to_overrides(config, base)) {
    words.push_back("--set");
    words.push_back(word);
  }
  for (const auto& folder : args.plugin_dirs) words.insert(words.end(), {"--plugin-dir", folder.string()});
  for (const auto& folder : args.model_dirs) words.insert(words.end(), {"--model-dir", folder.string()});
  return words;
}

}  // namespace tenon::app
