// A grammar is found again by its form and text, and one that is being compiled is waited for, so that equal requests
// compile it once. There is room for so many bytes of compiled grammars; the oldest are forgotten.
#include "grammars.h"

#include <algorithm>
#include <array>
#include <new>

#include "../fault.h"
#include "tenon/core/error.h"
#include "tenon/sdk/error.h"

namespace tenon {
namespace {

constexpr uint64_t kKeptBytes = uint64_t{256} << 20U;
constexpr size_t kKeptGrammars = 1024;
constexpr size_t kBits = 32;

// This is a call of the component, with room for its reason.
class GrammarCall {
 public:
  GrammarCall(const GrammarHost& host, const char* doing)
      : id_(host.instance.id()), doing_(doing), in_(id_.c_str(), doing) {}
  tenon_reason* why() { return &why_; }
  // `refused` is the error's code if the component refuses.
  void check(tenon_status status, ErrorCode refused) const {
    if (status == TENON_OK) return;
    if (status == TENON_REFUSED) throw Error(refused, text_.data());
    throw Error(status == TENON_NO_SPACE ? ErrorCode::kMemory : ErrorCode::kPlugin,
                id_ + ": " + doing_ + ": " + text_.data());
  }

 private:
  const std::string& id_;
  const char* doing_;
  fault::InComponent in_;
  std::array<char, 1024> text_{};
  tenon_reason why_{text_.data(), static_cast<uint32_t>(text_.size())};
};

uint32_t form_of(GrammarForm form) {
  switch (form) {
    case GrammarForm::kJsonSchema:
      return TENON_GRAMMAR_JSON_SCHEMA;
    case GrammarForm::kRegex:
      return TENON_GRAMMAR_REGEX;
    case GrammarForm::kEbnf:
      return TENON_GRAMMAR_EBNF;
  }
  return 0;
}

// Tokens that are no text have no bytes.
void prepare(const GrammarHost& host, const Tokenizer& tokenizer) {
  std::string bytes;
  std::vector<uint64_t> offset = {0};
  for (int32_t id = 0; id < tokenizer.info().vocab_size; ++id) {
    if (!tokenizer.is_control(id)) bytes += tokenizer.bytes(id);
    offset.push_back(bytes.size());
  }
  auto vocabulary = sdk::abi_struct<tenon_vocabulary>();
  vocabulary.tokens = host.tokens;
  vocabulary.ends = static_cast<uint32_t>(host.ends.size());
  vocabulary.bytes = bytes.data();
  vocabulary.offset = offset.data();
  vocabulary.end = host.ends.data();
  GrammarCall call(host, "prepare");
  call.check(host.table().prepare(host.instance.self(), &vocabulary, call.why()), ErrorCode::kPlugin);
}

// Returns what the handled exception says. Threads that wait for the same
// grammar throw errors of their own that say so.
Status problem_now() {
  try {
    throw;
  } catch (const Error& e) {
    return Status::error(e.code(), e.diagnostics().front().message);
  } catch (const std::bad_alloc&) {
    return Status::error(ErrorCode::kMemory, "out of memory");
  } catch (...) {
    return Status::error(ErrorCode::kInternal, "the grammar could not be compiled");
  }
}

}  // namespace

GrammarMatcher::GrammarMatcher(std::shared_ptr<const Grammar> grammar) : grammar_(std::move(grammar)) {
  const GrammarHost& host = grammar_->host();
  GrammarCall call(host, "start");
  call.check(host.table().start(host.instance.self(), grammar_->compiled(), &matcher_, call.why()), ErrorCode::kPlugin);
  const auto rewind = host.table().rewind;
  rewinds_ = rewind != nullptr && rewind(host.instance.self(), matcher_, 0, call.why()) == TENON_OK;
}

GrammarMatcher::~GrammarMatcher() {
  const GrammarHost& host = grammar_->host();
  const fault::InComponent in(host.instance.id().c_str(), "stop");
  host.table().stop(host.instance.self(), matcher_);
}

void GrammarMatcher::accept(int32_t token) {
  const GrammarHost& host = grammar_->host();
  GrammarCall call(host, "accept");
  call.check(host.table().accept(host.instance.self(), matcher_, token, call.why()), ErrorCode::kPlugin);
}

bool GrammarMatcher::accept_draft(int32_t token) {
  const GrammarHost& host = grammar_->host();
  if (token < 0 || static_cast<uint32_t>(token) >= host.tokens) return false;
  GrammarCall call(host, "accept");
  const tenon_status status = host.table().accept(host.instance.self(), matcher_, token, call.why());
  if (status == TENON_REFUSED) return false;
  call.check(status, ErrorCode::kPlugin);
  return true;
}

void GrammarMatcher::rewind(uint32_t drafts) {
  if (drafts == 0) return;
  const GrammarHost& host = grammar_->host();
  GrammarCall call(host, "rewind");
  call.check(host.table().rewind(host.instance.self(), matcher_, drafts, call.why()), ErrorCode::kPlugin);
}

bool GrammarMatcher::ends(int32_t token) const {
  const std::vector<int32_t>& ends = grammar_->host().ends;
  return std::binary_search(ends.begin(), ends.end(), token);
}

void GrammarMatcher::mask(std::span<uint32_t> bits) {
  const GrammarHost& host = grammar_->host();
  GrammarCall call(host, "mask");
  call.check(host.table().mask(host.instance.self(), matcher_, bits.data(), call.why()), ErrorCode::kPlugin);
  if (host.tokens % kBits != 0) bits[host.tokens / kBits] &= (uint32_t{1} << host.tokens % kBits) - 1;
  if (std::any_of(bits.begin(), bits.end(), [](uint32_t word) { return word != 0; })) return;
  throw Error(ErrorCode::kRequest, "the text cannot go on: the grammar allows no token of the vocabulary here");
}

Grammar::Grammar(std::shared_ptr<const GrammarHost> host, const GrammarText& text) : host_(std::move(host)) {
  auto source = sdk::abi_struct<tenon_grammar_source>();
  source.form = form_of(text.form);
  source.flags = text.closed ? TENON_GRAMMAR_CLOSED : 0;
  source.text = text.text.data();
  source.bytes = text.text.size();
  GrammarCall call(*host_, "compile");
  call.check(host_->table().compile(host_->instance.self(), &source, &compiled_, &bytes_, call.why()),
             ErrorCode::kRequest);
}

Grammar::~Grammar() {
  const fault::InComponent in(host_->instance.id().c_str(), "release");
  host_->table().release(host_->instance.self(), compiled_);
}

Grammars::Grammars(const ComponentConfig& config, std::shared_ptr<Registry> registry, const Tokenizer& tokenizer,
                   std::vector<int32_t> ends, HostEnv::Log log)
    : host_(std::make_shared<GrammarHost>(std::move(registry), std::move(log))) {
  host_->instance = host_->env.create(config, *host_->registry);
  host_->tokens = static_cast<uint32_t>(tokenizer.info().vocab_size);
  host_->ends = std::move(ends);
  prepare(*host_, tokenizer);
}

// Whoever asks first compiles; others who ask for the same meanwhile wait for that. An error is not kept.
std::shared_ptr<const Grammar> Grammars::compile(const GrammarText& text) {
  const Key key{text.form, text.closed, text.text};
  std::promise<Outcome> promise;
  Compiled other;
  {
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = kept_.try_emplace(key);
    Kept& kept = found->second;
    if (is_new) {
      kept.outcome = promise.get_future().share();
      kept.use = uses_.insert(uses_.begin(), key);
    } else {
      other = kept.outcome;
      uses_.splice(uses_.begin(), uses_, kept.use);
    }
  }
  if (other.valid()) {
    const auto& [grammar, problem] = other.get();
    if (!grammar) throw Error(problem.code(), problem.message());
    return grammar;
  }
  try {
    auto grammar = std::make_shared<const Grammar>(host_, text);
    promise.set_value({grammar, {}});
    keep(key, grammar->bytes());
    return grammar;
  } catch (...) {
    forget(key);
    promise.set_value({nullptr, problem_now()});
    throw;
  }
}

// The oldest go where there is no room.
void Grammars::keep(const Key& key, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  kept_[key].bytes = std::max<uint64_t>(bytes, 1);
  bytes_ += kept_[key].bytes;
  for (auto at = uses_.end(); at != uses_.begin() && (bytes_ > kKeptBytes || kept_.size() > kKeptGrammars);) {
    --at;
    const auto found = kept_.find(*at);
    if (found->second.bytes == 0) continue;  // it is being compiled
    bytes_ -= found->second.bytes;
    kept_.erase(found);
    at = uses_.erase(at);
  }
}

void Grammars::forget(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(key);
  uses_.erase(found->second.use);
  kept_.erase(found);
}

}  // namespace tenon
