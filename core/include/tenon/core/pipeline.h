// A pipeline has the components that a configuration names. They are negotiated and recorded as step programs, whose
// memory is planned; then it is loaded, and takes steps. docs/glossary.md has the words.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/core/config.h"
#include "tenon/core/error.h"
#include "tenon/core/memory_plan.h"
#include "tenon/core/module.h"
#include "tenon/core/program.h"
#include "tenon/core/registry.h"
#include "tenon/core/saved_sequence.h"
#include "tenon/core/trace.h"
#include "tenon/core/weights.h"

namespace tenon {

// An observer is a scheme that sees what goes into products while steps run: CALIBRATION in tenon/abi/quantization.h.
struct Observer {
  ComponentConfig scheme;
  std::vector<std::string> matrices;  // paths: "layers.3.attention.q"
};

inline constexpr uint32_t kWarning = 2;  // a level of the log; see tenon_host

struct PipelineOptions {
  uint32_t sequences = 1;            // so many run at once; each has a slot of the cache
  uint32_t prefill_rows = 512;       // a step has so many rows at most
  uint32_t score_rows = 0;           // a scoring step gives the logits of so many rows at most; 0 = no scoring
  const ModelKind* model = nullptr;  // nullptr: the family that claims the weights
  std::vector<std::filesystem::path> model_dirs = {};  // families are looked for here first
  trace::Recorder* recorder = nullptr;                 // outlives the pipeline
  std::function<void(uint32_t level, const std::string& message)>
      log;                                 // takes what the host and components say; see tenon_host
  std::vector<Observer> observers = {};    // the ops before products that they see run as ops of their own
  std::optional<LayerRange> range = {};    // only this range of the model is built; without a head no step samples
  const Weights* draft_weights = nullptr;  // the draft model's, if the configuration has one; they outlive the pipeline
  bool load_sessions = false, save_sessions = false;  // sequences may begin from saved ones; they may be saved
  // Every module works on all rows of a step, as who looks at their results may expect; else what comes after the last
  // attention works on those whose logits are wanted.
  bool all_rows = false;
  bool masks = false;                       // batches may have masks, which need programs and memory of their own
  std::filesystem::path system_root = "/";  // the limits of control groups are looked for below it
  // Tests on the host set this: every storage has pages of its own and ends, up to 63 bytes, where a page begins that
  // nobody may touch. That takes more memory than the plan says.
  bool guarded = false;
};

// A decision is one thing that was chosen while building, or turned down, with the reason.
struct Decision {
  std::string path;  // the module's path; with "layers.*." it stands for all layers, with "layers.0-3,7." for these
  std::string text;
  uint32_t count = 1;  // it stands for so many modules
};

// A batch is what one step takes: rows in the order of their sequences. The engine fills it, and keeps its memory.
struct StepBatch {
  std::vector<int32_t> token, position, slot, parent;  // (rows)
  std::vector<int32_t> seq_slot, seq_row;              // (sequences), (sequences + 1)
  std::vector<int32_t> out_row;                        // the rows whose logits are wanted, ascending
  std::vector<int32_t> host_row;                       // the out rows whose logits the host wants, too, ascending
  std::vector<int32_t> kv_len;                         // (slots)
  // (rows): a row whose number is not below 0 has the token that the step before chooses for that out row, and `token` has
  // 0. It is empty but for batches that StepAhead::next gives.
  std::vector<int32_t> from = {};
  bool sample = true;  // false: the host wants the logits of all out rows, and nothing else
  bool pool = false;   // the final hidden states of its sequences are pooled; the pipeline is built with embeddings
  // Each sequence has 1 + draft_tokens() rows, and the draft model makes the tokens of all but the first.
  bool round = false;
  // (out rows): Each is the number of the mask that the row's token is chosen under (see TENON_F_MASK), from 0, or -1.
  // It is empty if no row has one. fill_mask sets the bits of a mask, which are 0. step() calls it when it takes the
  // batch, while the device computes if that has queues; explain(), if it comes before that, for the step that is under
  // way.
  std::vector<int32_t> mask;
  using FillMask = std::function<void(int32_t number, std::span<uint32_t> bits)>;
  FillMask fill_mask = {};
  // `prompts` sequences are still in their prompt and have `prompt_rows` of the rows; `drafted` rows are drafts.
  uint32_t prompts = 0, prompt_rows = 0, drafted = 0;

  void clear();
};

// This says what may come after a step. A device with queues begins with it while the step is under way, if the cache has room,
// and says so in result.ahead: the next batch is that one, or nobody wants any more of its sequences. Its masks are made
// when it is taken.
struct StepAhead {
  // Says whether the next batch may be this one with every row moved on by the token that is chosen now. It is asked
  // once or twice, the last time shortly before the step ends.
  std::function<bool()> goes_on = {};
  // Returns another batch that is certain to be the next one; nullptr if there is none. It is asked once at most,
  // shortly before the step ends and where goes_on says no. The batch stays as it is until use is called.
  std::function<const StepBatch*()> next = {};
};

// The results of a step are valid until the next step.
struct StepResult {
  std::span<const int32_t> next;       // (out rows): a token, or below 0 a value that tenon/sdk/told.h explains
  std::span<const int32_t> accepted;   // (sequences): how many rows survive
  std::span<const int32_t> survivors;  // (rows): those that survive, ascending, of sequence s from row seq_row[s] on
  // (out rows, out_columns()), as the model gave them; on a device with queues only the rows that the batch wants are
  // there, and it is empty if that wants none.
  std::span<const float> logits;
  bool ahead = false;  // the step after this one is under way: see step()
};

// The final hidden states of a text, those that the head multiplies, become one vector: their mean, or the last one.
enum class Pooling { kNone, kMean, kLast };

// It is told of the progress of loading, in bytes.
using LoadProgress = std::function<void(uint64_t done, uint64_t total)>;

// Thread: one at a time may call its functions. The registry and the weights outlive it.
class Pipeline {
 public:
  // Creates the components, negotiates, records all programs and plans memory. Reads no weights, allocates no device
  // memory. Throws Error: kConfig or kPlugin for parts that do not fit together (with every reason), kModel for the
  // weights.
  static std::unique_ptr<Pipeline> build(const PipelineConfig& config, Registry& registry, const Weights& weights,
                                         const PipelineOptions& options);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  const ModelInfo& model() const;
  const MemoryPlan& plan() const;
  const std::vector<Decision>& decisions() const;
  std::vector<const Program*> programs() const;
  uint32_t capacity() const;          // the cache has room for so many tokens of a sequence
  uint32_t longest_sequence() const;  // a sequence may have so many: the capacity, unless the cache drops old tokens
  uint32_t sequences() const;         // there are so many slots
  uint32_t max_rows() const;          // a sampling step has so many rows at most
  uint32_t max_out_rows(bool sample) const;  // so many of its rows, or of a scoring step's, have logits at most
  // Returns, ascending, the rows of the programs for steps of one row a sequence.
  std::vector<uint32_t> one_row_programs() const;
  // Returns, ascending, the rows of the programs for steps with prompts beside sequences that generate; none on a device
  // without queues, where a step takes as long as its own rows do.
  std::vector<uint32_t> prompt_programs() const;
  bool has_head() const;               // false: it is a part of a model, which gives rows instead of logits
  uint32_t out_columns() const;        // the vocabulary, or without a head the model's width
  uint32_t draft_tokens() const;       // a step has so many proposals at most; 0 without a draft
  bool has_draft_model() const;        // true: drafts are made within a step, see StepBatch::round
  uint32_t row_invariant_max() const;  // see tenon_quantization
  uint32_t threads() const;
  const tenon_device& device() const;
  uint64_t weight_bytes() const;  // the matrices as they are multiplied have so many, in stores and mapped
  // A decode step of `rows` rows reads so many bytes: all but an embedding that is only looked up, of experts at most
  // as many as its rows can choose, and those of every draft pass.
  uint64_t step_weight_bytes(uint32_t rows) const;

  // Allocates and loads. Throws Error(kMemory) before anything is allocated if the plan does not fit. After any other
  // error all that is left is to destroy the pipeline, which gives everything back.
  void load(const LoadProgress& progress = {});
  uint64_t allocated() const;   // so many bytes are allocated on the device now
  uint64_t high_water() const;  // the most that were allocated at one time

  // Measures how fast the device reads its memory. A device that leaves this to the host gives nothing.
  struct ReadRate {
    double bytes_per_second = 0;
    uint64_t bytes = 0;  // it read so many in one pass
  };
  std::optional<ReadRate> read_rate() const;

  // Prepares a slot for a new sequence: its sampler's parameters and random key, empty states. overrides:
  // "temperature.value" = text, checked against the samplers' schemas. `cached` are the tokens that the slot has
  // adopted, which its samplers have to count. Throws Error(kRequest).
  using Override = std::pair<std::string, std::string>;
  void start_sequence(uint32_t slot, uint64_t seed, std::span<const Override> overrides,
                      std::span<const int32_t> cached = {});
  // Ends the slot's sequence, or takes its slot away: what it has in the cache is free again.
  void end_sequence(uint32_t slot);
  // Makes room in the cache for that many tokens. It is called before every step, for its rows. kMemory: there is no
  // room.
  Status reserve(uint32_t slot, uint32_t kv_len);
  // Drops what the cache has of the slot's sequence from token `kv_len` on. Throws Error(kPlugin) if the cache cannot.
  void truncate(uint32_t slot, uint32_t kv_len);
  // Returns how many pages of the cache no slot holds, and their size in tokens; both are 0 where slots share no pages.
  uint32_t free_pages(uint32_t& page_tokens) const;
  // Sequences that begin alike share cells, where the cache can do that (finds()); see tenon_kv_cache. `tokens` is how
  // many leading tokens are in the cache, `held` how many of them lie in pages that a slot holds.
  struct Found {
    uint32_t tokens = 0, held = 0;
  };
  bool finds() const;
  Found find(std::span<const int32_t> tokens) const;
  // Makes what find() finds the beginning of a slot that has nothing, and returns its length.
  uint32_t adopt(uint32_t slot, std::span<const int32_t> tokens);
  // Lets find() find the slot's first tokens, which are in the cache, from now on. If they are empty, find()
  // finds none of the slot's any more.
  void share(uint32_t slot, std::span<const int32_t> tokens);
  // Returns what cells of this pipeline depend on; nothing unless the options have sessions.
  const std::vector<SessionFact>& session_facts() const;
  // Returns the cells of the slot's first tokens, of a draft model too. Throws Error(kPlugin) if a cache does
  // not have them any more, or exports nothing.
  std::vector<std::byte> export_sequence(uint32_t slot, uint32_t kv_len);
  // Makes cells that a pipeline of the same facts exported the beginning of a slot for which there is room. Throws
  // Error(kRequest) if a cache refuses them.
  void import_sequence(uint32_t slot, uint32_t kv_len, std::span<const std::byte> cells);
  // Returns how many bytes of the cache a sequence of that length takes.
  uint64_t kv_used_bytes(uint32_t kv_len) const;
  // Returns how many pages of the cache a sequence of that length takes.
  uint64_t kv_used_blocks(uint32_t kv_len) const;
  // Writes up to out.size() tokens that may follow, and returns how many. Token i follows proposal parent[i] < i, or
  // the newest token if that is -1. Throws Error(kPlugin).
  uint32_t propose(uint32_t slot, std::span<const int32_t> tokens, std::span<int32_t> out, std::span<int32_t> parent);

  // Returns what the steps with StepBatch::pool made of a slot's sequence of so many tokens: f32 (width). kMean is
  // about sequences that have adopted nothing. Throws Error(kPlugin).
  std::vector<float> pooled(uint32_t slot, Pooling pooling, uint32_t tokens) const;

  // A broken row has no next token, since its logits, or what samplers made of them, are not finite.
  struct BrokenRow {
    uint32_t slot = 0;
    std::span<const int32_t> tokens;  // the sequence's tokens, up to the row's own
    uint32_t cached = 0;              // so many of them were in the cache before the step
    bool sampled = false;             // true: the logits are finite, and a sampler is at fault
  };
  // Says why a row is broken. The sequence's rows are run again, op by op, in its own slot, where they may
  // overwrite its cells; what other sequences have stays. The step that was launched ahead, if there is one, is done
  // then. It is called before the sequence ends, and may take as long as reading its text. The result is
  // kNumbers, or kPlugin if a sampler is at fault.
  Error explain(const BrokenRow& row);

  // Sets, before step(), the rows that enter a part which does not embed: f32 (rows of the step, width).
  void hand_in(std::span<const float> rows);

  // Returns, once the pipeline is loaded, what an observer has added up of all steps so far, for the site of that
  // matrix, of a routed site for one of its experts; empty if no observer wants it. Throws Error(kPlugin).
  std::vector<std::byte> observed(const std::string& matrix, uint32_t expert = 0) const;

  // Sets, once the pipeline is loaded, who is told of the ops of the steps from now on; {} is nobody. Graphs are
  // captured anew afterwards, so that a profiler that was attached meanwhile sees them being made. When it returns,
  // nothing is under way on the device. Throws Error.
  void watch(OpWatch watch);

  // This is the last result of a module of the model that gives the text, as it was when its op had ended.
  struct ModuleResult {
    std::string_view path;            // "layers.3.mlp.down"
    std::string_view component, op;   // they made it: "quantization.none", "product"
    uint32_t rows = 0, columns = 0;   // only live rows count
    std::span<const float> values{};  // (rows, columns)
  };
  using Look = std::function<void(const ModuleResult& result)>;
  // Makes every step from now on run op by op. The thread that calls step() then calls `look` with the results of these
  // modules, in the order of their ops, once the step has ended. It does not throw, and what it is given is valid
  // during the call. Without paths steps run as usual again. Throws Error(kUsage), which names what there is, for a
  // path that no op leaves a result for.
  void look_at(std::vector<std::string> paths, Look look);

  // Returns the track on which this thread records, once the pipeline is loaded; without a recorder it records nothing.
  trace::Track& track();
  // These are numbers of steps as a trace has them, of the step that runs or is the next one, and of the one before it
  // (0 at first). Without a recorder nobody counts them.
  uint64_t this_step() const;
  uint64_t last_step() const;
  // Runs one step. It allocates nothing once a batch of that shape has run. use is called with the results if there are
  // any. What it does counts as part of the step in a trace; it returns the text of the tokens that the step gave (valid
  // until the step ends).
  using Use = std::function<std::string_view(const StepResult& result)>;
  Status step(const StepBatch& batch, StepResult& result, const StepAhead& ahead = {}, const Use& use = {});

 private:
  Pipeline();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenon
