// This is the engine's side of the kind `grammar`: it compiles what requests state, keeps it, and asks for masks.
#pragma once

#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "host_env.h"
#include "tenon/abi/grammar.h"
#include "tenon/core/engine.h"

namespace tenon {

// This is the text of one sequence as its grammar sees it. Thread: one at a time.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<const Grammar> grammar);
  ~GrammarMatcher();
  GrammarMatcher(const GrammarMatcher&) = delete;
  GrammarMatcher& operator=(const GrammarMatcher&) = delete;

  // The text goes on with a token that ends no text. Throws Error(kPlugin).
  void accept(int32_t token);
  // Says whether the text may go on with a draft, a token that ends no text; if so, it does, until it is rewound. Throws
  // Error(kPlugin).
  bool accept_draft(int32_t token);
  void rewind(uint32_t drafts);              // throws Error(kPlugin)
  bool rewinds() const { return rewinds_; }  // false: it takes no drafts
  bool ends(int32_t token) const;            // a text
  // Sets the bits of the tokens that may come next, in bits that are 0. Throws
  // Error: kPlugin, kRequest if there is none.
  void mask(std::span<uint32_t> bits);

 private:
  std::shared_ptr<const Grammar> grammar_;
  void* matcher_ = nullptr;
  bool rewinds_ = false;
};

// This holds the component, and what matchers and grammars need of it.
struct GrammarHost {
  GrammarHost(std::shared_ptr<Registry> libraries, HostEnv::Log log)
      : registry(std::move(libraries)), env(std::move(log)) {}
  const tenon_grammar& table() const { return instance.table<tenon_grammar>(); }

  std::shared_ptr<Registry> registry;  // has the component's library, and lasts as long as the instance
  HostEnv env;
  Instance instance;
  uint32_t tokens = 0;        // the vocabulary has so many
  std::vector<int32_t> ends;  // the tokens that end a text, sorted
};

// A request's text has to match this grammar, which is compiled. It never changes.
class Grammar {
 public:
  Grammar(std::shared_ptr<const GrammarHost> host, const GrammarText& text);  // throws Error(kRequest)
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  const GrammarHost& host() const { return *host_; }
  const void* compiled() const { return compiled_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<const GrammarHost> host_;
  void* compiled_ = nullptr;
  uint64_t bytes_ = 0;
};

// Thread: any.
class Grammars {
 public:
  // `ends` are sorted. Throws Error(kPlugin).
  Grammars(const ComponentConfig& config, std::shared_ptr<Registry> registry, const Tokenizer& tokenizer,
           std::vector<int32_t> ends, HostEnv::Log log);

  // See Engine::compile.
  std::shared_ptr<const Grammar> compile(const GrammarText& text);
  // Says whether it was compiled here, for this vocabulary.
  bool compiled(const Grammar& grammar) const { return &grammar.host() == host_.get(); }

 private:
  using Key = std::tuple<GrammarForm, bool, std::string>;
  struct Outcome {
    std::shared_ptr<const Grammar> grammar;
    Status problem;  // why there is none
  };
  using Compiled = std::shared_future<Outcome>;
  struct Kept {
    Compiled outcome;
    uint64_t bytes = 0;  // 0 while it is being compiled
    std::list<Key>::iterator use;
  };
  void keep(const Key& key, uint64_t bytes);
  void forget(const Key& key);

  std::shared_ptr<GrammarHost> host_;
  std::mutex mutex_;
  std::map<Key, Kept> kept_;
  std::list<Key> uses_;  // the newest first
  uint64_t bytes_ = 0;
};

}  // namespace tenon
