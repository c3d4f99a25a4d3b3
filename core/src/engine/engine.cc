#include "tenon/core/engine.h"

#include <algorithm>

#include "engine_impl.h"
#include "run.h"

namespace tenon {

void Engine::Impl::check_prompt(const std::vector<int32_t>& tokens) const {
  if (tokens.empty()) {
    throw Error(ErrorCode::kRequest, "the prompt is empty, and the model has no token that begins a text");
  }
  if (tokens.size() >= pipeline->capacity()) {
    throw Error(ErrorCode::kRequest,
                "the prompt has " + std::to_string(tokens.size()) + " tokens; the cache holds " +
                    std::to_string(pipeline->capacity()) +
                    " with at least one of them new; raise kv_cache.capacity or shorten the prompt");
  }
  const uint32_t vocab = pipeline->model().vocab;
  for (const int32_t id : tokens) {
    if (id < 0 || static_cast<uint32_t>(id) >= vocab) {
      throw Error(ErrorCode::kRequest,
                  "token " + std::to_string(id) + " is not of the vocabulary (0 to " + std::to_string(vocab - 1) + ")");
    }
  }
}

Engine::Engine() : impl_(std::make_unique<Impl>()) {}
Engine::~Engine() = default;

const PipelineConfig& Engine::config() const {
  return impl_->config;
}
const PipelineConfig& Engine::default_config() const { return impl_->defaults; }
const Registry& Engine::registry() const {
  return *impl_->registry;
}
const Weights& Engine::weights() const {
  return *impl_->weights;
}
const Tokenizer& Engine::tokenizer() const {
  return *impl_->tokenizer;
}
const std::optional<ChatFormat>& Engine::chat_format() const {
  return impl_->chat;
}
Pipeline& Engine::pipeline() {
  return *impl_->pipeline;
}
const Pipeline& Engine::pipeline() const {
  return *impl_->pipeline;
}

void Engine::load(const LoadProgress& progress) {
  if (impl_->loaded) return;
  impl_->pipeline->load(progress);
  impl_->loaded = true;
}

std::vector<int32_t> Engine::prompt_tokens(const Request& request) const {
  if (!request.prompt.empty()) return tokenizer().encode(request.prompt);
  if (!request.chat.empty()) {
    if (!impl_->chat) {
      throw Error(ErrorCode::kRequest,
                  impl_->chat_problem.empty() ? "the model has no chat template" : impl_->chat_problem);
    }
    return impl_->chat->encode(tokenizer(), request.chat);
  }
  if (!request.tokens.empty()) return request.tokens;
  return tokenizer().encode("");
}

std::vector<Result> Engine::generate(std::span<const Request> requests, RunStats* stats) {
  load();
  std::vector<Sequence> sequences;
  sequences.reserve(requests.size());
  for (const Request& request : requests) {
    std::vector<int32_t> prompt = prompt_tokens(request);
    impl_->check_prompt(prompt);
    const bool chat = !request.chat.empty() && impl_->chat;
    sequences.emplace_back(request, static_cast<uint32_t>(sequences.size()), std::move(prompt),
                           chat ? impl_->chat->stop_tokens(tokenizer()) : tokenizer().info().end_of_generation,
                           tokenizer(), pipeline().capacity());
    sequences.back().request_id = ++impl_->requests;
  }
  RunStats own;
  Run run(pipeline(), *impl_->scheduler, impl_->trace ? &*impl_->trace : nullptr, stats != nullptr ? *stats : own);
  run.run(sequences, impl_->config.seed);
  std::vector<Result> results;
  for (Sequence& s : sequences) results.push_back(s.take_result());
  return results;
}

Result Engine::generate(const Request& request, RunStats* stats) {
  return std::move(generate(std::span(&request, 1), stats).front());
}

void Engine::score(std::span<const int32_t> tokens, uint32_t first,
                   const std::function<void(uint32_t, std::span<const float>)>& on_row, const std::stop_token& cancel) {
  load();
  Pipeline& p = pipeline();
  const uint32_t piece = p.max_out_rows(false);
  if (piece == 0) throw Error(ErrorCode::kUsage, "this engine was opened without score_rows");
  impl_->check_prompt({tokens.begin(), tokens.end()});
  p.start_sequence(0, 0, {});
  StepBatch batch;
  batch.sample = false;
  batch.kv_len.assign(p.sequences(), 0);
  for (uint32_t at = 0; at < tokens.size() && !cancel.stop_requested();) {
    const auto rows = std::min<uint32_t>(piece, static_cast<uint32_t>(tokens.size()) - at);
    batch.clear();
    batch.seq_row = {0, static_cast<int32_t>(rows)};
    batch.seq_slot = {0};
    batch.kv_len[0] = static_cast<int32_t>(at);
    batch.prompts = 1, batch.prompt_rows = rows;
    for (uint32_t i = 0; i < rows; ++i) {
      batch.token.push_back(tokens[at + i]);
      batch.position.push_back(static_cast<int32_t>(at + i));
      batch.slot.push_back(0);
      batch.parent.push_back(static_cast<int32_t>(i) - 1);
      if (at + i >= first) batch.out_row.push_back(static_cast<int32_t>(i));
    }
    Status status = p.reserve(0, at + rows);
    StepResult result;
    if (status.ok()) status = p.step(batch, result);
    if (!status.ok()) throw Error(status.code(), status.message());
    const size_t vocab = p.model().vocab;
    for (size_t o = 0; o < batch.out_row.size(); ++o) {
      on_row(at + static_cast<uint32_t>(batch.out_row[o]), result.logits.subspan(o * vocab, vocab));
    }
    at += rows;
  }
}

}  // namespace tenon
