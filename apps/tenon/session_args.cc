#include "session_args.h"

#include <spdlog/spdlog.h>

#include <vector>

#include "output_path.h"
#include "tenon/core/memory_plan.h"

namespace tenon::app {

void SessionArgs::add_to(CLI::App& command) {
  command.add_option("--load-session", load,
                     "Begin from this session as far as the prompt has its tokens, instead of computing them");
  command.add_option("--save-session", save,
                     "Save prompt and text as the cache has them, to be loaded later; with -n 0 the prompt alone");
}

void SessionArgs::open(std::span<const std::string> inputs, bool force) {
  std::vector<std::string> all(inputs.begin(), inputs.end());
  all.push_back(load);
  check_output(save, all, force);
  if (!load.empty()) loaded_ = SavedSequence::read(load);
}

void SessionArgs::allow(EngineOptions& options) const {
  options.load_sessions = !load.empty();
  options.save_sessions = !save.empty();
}

void SessionArgs::check(const Engine& engine, bool force) const {
  std::vector<std::string> models = {engine.config().model.path};
  if (engine.config().draft_model) models.push_back(engine.config().draft_model->model.path);
  check_output(save, models, force);
  if (loaded_) loaded_->check_facts(engine.pipeline().session_facts());
}

void SessionArgs::put_into(Request& request) const {
  request.begin_from = loaded_;
  request.save = !save.empty();
}

void SessionArgs::finish(const Result& result, bool force) const {
  // The text's reader went away: the command fails, and leaves nothing.
  if (save.empty() || result.finish == FinishReason::kCallback) return;
  if (!result.saved) {
    spdlog::warn("{}: not written, since nothing of the prompt was computed", save);
    return;
  }
  result.saved->write(save, force);
  spdlog::info("{}: {} tokens, {}", save, result.saved->tokens().size(), format_bytes(result.saved->file_bytes()));
}

boost::json::value SessionArgs::to_json(const Result& result) const {
  boost::json::object out;
  if (loaded_) {
    out["loaded"] = boost::json::object{{"path", load},
                                        {"tokens", loaded_->tokens().size()},
                                        {"bytes", loaded_->file_bytes()},
                                        {"used", result.reused}};
  }
  if (result.saved) {
    out["saved"] = boost::json::object{
        {"path", save}, {"tokens", result.saved->tokens().size()}, {"bytes", result.saved->file_bytes()}};
  }
  if (out.empty()) return nullptr;
  return out;
}

}  // namespace tenon::app
