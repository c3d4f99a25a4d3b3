// This finds out why a row has no next token: its rows are run again, op by op, and what each op leaves is
// looked at before another one takes its memory.
//
// The rows of the step alone come first: whatever they did, they do again, over the same cells. If attention is where
// it begins, then what it read of the cache was not finite, and that may be an earlier row's doing: then the whole
// sequence is computed anew from its first token, which shows either that row or that keys and values were finite
// before they were stored. Only the sequence's own cells are written. What lies in tensors that a component made for
// itself is its own business: they may hold infinities, or memory that nobody has written.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

#include "../cpu/candidates_check.h"
#include "finite_weights.h"
#include "pipeline_impl.h"
#include "tenon/core/error.h"
#include "tenon/sdk/kv_codec.h"
#include "tenon/sdk/told.h"

namespace tenon {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

// Returns the largest number that a cache's format holds.
double most_of(const tenon_kv_plane& plane) {
  constexpr double kI4 = 8, kI8 = 127, kF16 = 65504, kBf16 = 3.3895313892515355e38, kF8E4M3 = 448, kF8E5M2 = 57344;
  switch (plane.codec) {
    case TENON_F16:
      return kF16;
    case TENON_BF16:
      return kBf16;
    case TENON_F8E4M3:
      return plane.scale == TENON_FORMAT_NONE ? kF8E4M3 : kF8E4M3 * most_of({plane.scale, 0});
    case TENON_F8E5M2:
      return kF8E5M2;
    case TENON_I8:
      return kI8 * most_of({plane.scale, 0});
    case TENON_U8:
      return kI4 * most_of({plane.scale, 0});
    default:
      return std::numeric_limits<float>::max();
  }
}

// Names a parameter of the cache that may have another value, one in f32: "kv_cache.format = \"fp32\" would hold it".
std::string wider_format(const ComponentConfig& cache) {
  const tenon_param_schema& schema = cache.params.schema();
  for (size_t i = 0; i < schema.count; ++i) {
    const tenon_param_spec spec = spec_at(schema, i);
    for (const std::string& choice : choices_of(spec)) {
      const bool chosen = cache.params.get(i) == ParamValue(choice);
      if (choice.starts_with("fp32") && !chosen) {
        return std::string("kv_cache.") + spec.name + " = " + value_text(choice) + " would hold it";
      }
    }
  }
  return "another kv_cache.use, or a wider format of it, would hold it";
}

}  // namespace

class Pipeline::Impl::Explanation {
 public:
  Explanation(Impl& pipeline, const BrokenRow& row) : p_(pipeline), row_(row) {}

  Error error() { return row_.sampled ? of_samplers() : of_model(); }

 private:
  struct Found {
    size_t op;
    uint32_t position;
    float value, largest_input;
  };
  // These are the largest magnitudes that a layer's keys and values had.
  struct Largest {
    float key = 0, value = 0;
  };

  Error of_model();
  Error of_samplers();
  void run(uint32_t first, uint32_t end);
  void run_all();
  StepBatch batch_of(uint32_t first, uint32_t end) const;
  void look(size_t op);
  void look_at_heads(size_t op);
  void look_at_candidates(size_t op);
  std::string candidates_problem(const tenon_candidates& left);
  Rows rows_of(tenon_tid id, uint32_t count, std::vector<float>& buffer) const {
    return p_.rows_of(program(), id, count, buffer);
  }
  bool is_rows(tenon_tid id) const { return root_of(id).live >= 0; }
  const ProgramTensor& root_of(tenon_tid id) const { return program().tensor(program().tensor(id).root); }
  uint32_t live_rows(tenon_tid id) const { return root_of(id).live == 0 ? rows_ : outs_; }
  float largest_input(const ProgramOp& op) const;
  const Program& program() const { return *step_->program; }
  bool by_attention() const { return found_ && op_component_ == p_.target.components.attention.id(); }
  std::string where() const;
  std::string cause() const;
  std::string cause_in_attention() const;
  std::string cache_text(const AttentionLayer& layer, const Largest& largest) const;

  Impl& p_;
  const BrokenRow& row_;
  const StepProgram* step_ = nullptr;
  uint32_t first_ = 0, rows_ = 0, outs_ = 0;  // the run's first position, its rows and out rows
  std::optional<Found> found_;
  std::string op_path_, op_component_;  // the op that left what was found
  std::vector<Largest> largest_;        // by AttentionDecl::cache_layer
  bool from_the_first_ = false, not_again_ = false;
  std::optional<size_t> sampler_;  // the sampler that left what none may leave
  std::string left_;               // what it left: "leaves ..."
  std::vector<float> buffer_;
};

StepBatch Pipeline::Impl::Explanation::batch_of(uint32_t first, uint32_t end) const {
  StepBatch batch;
  const auto slot = static_cast<int32_t>(row_.slot);
  for (uint32_t at = first; at < end; ++at) {
    batch.token.push_back(row_.tokens[at]);
    batch.position.push_back(static_cast<int32_t>(at));
    batch.slot.push_back(slot);
    batch.parent.push_back(static_cast<int32_t>(at - first) - 1);
  }
  if (end == row_.tokens.size()) batch.out_row.push_back(static_cast<int32_t>(end - first) - 1);
  batch.seq_slot = {slot};
  batch.seq_row = {0, static_cast<int32_t>(end - first)};
  batch.kv_len.assign(p_.shapes.front().slots, 0);
  batch.kv_len[row_.slot] = static_cast<int32_t>(first);
  return batch;
}

// Runs rows [first, end) of the sequence.
void Pipeline::Impl::Explanation::run(uint32_t first, uint32_t end) {
  const StepBatch batch = batch_of(first, end);
  first_ = first;
  rows_ = end - first;
  outs_ = static_cast<uint32_t>(batch.out_row.size());
  step_ = program_for(batch, p_.programs);
  if (step_ == nullptr) throw Error(ErrorCode::kInternal, "no program takes " + std::to_string(rows_) + " rows again");
  Status status = p_.reserve(row_.slot, end);
  if (status.ok()) status = p_.publish_caches();
  if (status.ok()) status = p_.state.publish(batch);
  const size_t ops = row_.sampled ? step_->given.back().first_op : step_->model_ops;
  if (status.ok()) status = p_.runner->run_each(program(), ops, [this](size_t op) { look(op); });
  if (!status.ok()) throw Error(status.code(), status.message());
}

// Runs the sequence from its first token on.
void Pipeline::Impl::Explanation::run_all() {
  p_.target.truncate(row_.slot, 0);
  if (p_.draft_model) p_.draft_model->truncate(row_.slot, 0);
  uint32_t most = 0;
  for (const StepProgram& p : p_.programs) {
    if (p.sample && !p.pool && !p.round) most = std::max(most, p.program->bounds().rows_per_seq);
  }
  found_.reset();
  largest_.clear();
  const auto all = static_cast<uint32_t>(row_.tokens.size());
  for (uint32_t at = 0; at < all && !found_; at += most) run(at, std::min(at + most, all));
}

float Pipeline::Impl::Explanation::largest_input(const ProgramOp& op) const {
  float largest = 0;
  std::vector<float> buffer;
  for (const tenon_operand& o : op.operands) {
    if (o.access != TENON_READ || !is_rows(o.tensor)) continue;
    const Rows x = rows_of(o.tensor, live_rows(o.tensor), buffer);
    for (uint32_t r = 0; r < x.count; ++r) {
      for (int64_t c = 0; c < x.columns; ++c) largest = std::max(largest, std::abs(x.at(r, c)));
    }
  }
  return largest;
}

void Pipeline::Impl::Explanation::look(size_t index) {
  if (found_ || sampler_) return;
  if (row_.sampled) return look_at_candidates(index);
  const ProgramOp& op = program().ops()[index];
  for (const tenon_operand& o : op.operands) {
    if ((o.access & TENON_WRITE) == 0 || !is_rows(o.tensor)) continue;
    const Rows y = rows_of(o.tensor, live_rows(o.tensor), buffer_);
    for (uint32_t r = 0; r < y.count; ++r) {
      for (int64_t c = 0; c < y.columns; ++c) {
        if (!sdk::no_logit(y.at(r, c))) continue;
        const uint32_t position = first_ + (root_of(o.tensor).live == 0 ? r : rows_ - 1);
        const float value = y.at(r, c);
        op_path_ = op.path;
        op_component_ = op.component;
        found_ = Found{index, position, value, largest_input(op)};
        return;
      }
    }
  }
  look_at_heads(index);
}

// Keeps the largest keys and values of each layer that has its own.
void Pipeline::Impl::Explanation::look_at_heads(size_t index) {
  const std::vector<ReadHeads>& all = step_->heads;
  largest_.resize(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const tenon_tid heads = all[i].tensor;
    const auto& operands = program().ops()[index].operands;
    const bool written = std::any_of(operands.begin(), operands.end(), [&](const tenon_operand& o) {
      return (o.access & TENON_WRITE) != 0 && program().tensor(o.tensor).root == program().tensor(heads).root;
    });
    if (!written) continue;
    const AttentionDecl& d = all[i].layer->decl;
    const int64_t keys = int64_t{d.q_heads} * d.k_dim, values = keys + int64_t{d.kv_heads} * d.k_dim;
    const Rows x = rows_of(heads, rows_, buffer_);
    for (uint32_t r = 0; r < x.count; ++r) {
      for (int64_t c = keys; c < x.columns; ++c) {
        float& largest = c < values ? largest_[d.cache_layer].key : largest_[d.cache_layer].value;
        largest = std::max(largest, std::abs(x.at(r, c)));
      }
    }
  }
}

// Looks at what a sampler has left, once its last op is done.
void Pipeline::Impl::Explanation::look_at_candidates(size_t index) {
  for (size_t i = 1; i < step_->given.size(); ++i) {
    const GivenCandidates& given = step_->given[i];
    if (given.first_op != index + 1) continue;
    left_ = candidates_problem(given.candidates);
    if (left_.empty()) continue;
    sampler_ = i - 1;
    return;
  }
}

std::string Pipeline::Impl::Explanation::candidates_problem(const tenon_candidates& left) {
  const Rows logits = rows_of(left.logits, 1, buffer_);
  CandidateRow row{left.vocab, left.vocab, logits.data, nullptr, static_cast<int32_t>(left.vocab)};
  std::vector<int32_t> ids;
  if (left.form == TENON_SPARSE) {
    ids.resize(row.cap = left.cap);
    p_.context.copy_now(&row.count, program().address(left.count), sizeof(row.count));
    p_.context.copy_now(ids.data(), program().address(left.id), ids.size() * sizeof(int32_t));
    row.id = ids.data();
  }
  if (std::string problem = entries_problem(row); !problem.empty()) return problem;
  const float* const end = row.logits + row.count;
  const float* const wrong = std::find_if(row.logits, end, sdk::no_candidate);
  return wrong == end ? choice_problem(row) : "leaves " + name_of(*wrong) + " among the candidates";
}

Error Pipeline::Impl::Explanation::of_samplers() {
  run(row_.cached, static_cast<uint32_t>(row_.tokens.size()));
  const std::string after = ", after " + std::to_string(row_.tokens.size()) + " tokens, from logits that are finite";
  if (sampler_) return {ErrorCode::kPlugin, p_.samplers[*sampler_].instance.id() + ": " + left_ + after};
  std::string names;
  for (size_t i = 0; i + 1 < p_.samplers.size(); ++i) {
    names += (i == 0 ? "" : ", ") + p_.samplers[i].instance.id();
  }
  return {ErrorCode::kPlugin,
          names + ": left candidates that none may leave" + after + ", and did not when asked again"};
}

Error Pipeline::Impl::Explanation::of_model() {
  const auto all = static_cast<uint32_t>(row_.tokens.size());
  run(row_.cached, all);
  if (by_attention() && row_.cached > 0) {
    const std::optional<Found> in_step = found_;
    const std::string path = op_path_, component = op_component_;
    run_all();
    from_the_first_ = true;
    if (!found_) {
      not_again_ = true;
      found_ = in_step;
      op_path_ = path;
      op_component_ = component;
    }
  }
  const std::string head = "the logits after " + std::to_string(all) + " tokens are not finite";
  if (!found_) {
    return {ErrorCode::kNumbers, head +
                                     "; when the same rows were run again, op by op, they were: not all that computes "
                                     "them gives the same result twice"};
  }
  return {ErrorCode::kNumbers, head + "; the first result that is not is that of " + where() + ", " + cause()};
}

std::string Pipeline::Impl::Explanation::where() const {
  return op_path_ + " (" + op_component_ + "): " + name_of(found_->value) + " at position " +
         std::to_string(found_->position) + " (token " + std::to_string(row_.tokens[found_->position]) + ")";
}

std::string Pipeline::Impl::Explanation::cause() const {
  std::string weight = weight_not_finite(p_.target, op_path_, row_.tokens[found_->position]);
  if (!weight.empty()) return "since " + weight;
  if (by_attention()) return cause_in_attention();
  return "although what it works on is finite, up to " + number(found_->largest_input) +
         ", and so are its weights as far as they can be read: they are too large for each other, or it computes them "
         "wrongly";
}

std::string Pipeline::Impl::Explanation::cause_in_attention() const {
  for (size_t i = 0; i < step_->heads.size(); ++i) {
    const AttentionLayer& layer = *step_->heads[i].layer;
    if (layer.decl.path != op_path_) continue;
    const std::string finite = "although its queries, keys and values are finite";
    if (not_again_) {
      return finite + ": what it read of the cache was not, and is when the text is computed from its first token";
    }
    return finite + (from_the_first_ ? ", from the first token on: " : ": ") +
           cache_text(layer, largest_[layer.decl.cache_layer]);
  }
  return "in an attention that no layer has";
}

std::string Pipeline::Impl::Explanation::cache_text(const AttentionLayer& layer, const Largest& largest) const {
  const tenon_kv_format& format = *layer.cache.format;
  const std::string cache = p_.target.components.kv_cache.id();
  const auto text = [&](const char* what, const tenon_kv_plane& plane, float found) {
    return cache + " keeps " + what + " as " + sdk::kv_codec_name(plane.codec) + ", up to " + number(most_of(plane)) +
           ", and the largest is " + number(found);
  };
  // If keys are turned after they are stored, or while they are, an element may grow to the length of its pair.
  const double turned = std::sqrt(2.0) * largest.key;
  if (turned > most_of(format.k)) return text("keys", format.k, largest.key) + "; " + wider_format(p_.config.kv_cache);
  if (largest.value > most_of(format.v)) {
    return text("values", format.v, largest.value) + "; " + wider_format(p_.config.kv_cache);
  }
  return text("keys", format.k, largest.key) + ", " + text("values", format.v, largest.value) +
         ": they are too large for each other, or " + op_component_ + " or the cache is wrong";
}

Error Pipeline::explain(const BrokenRow& row) {
  impl_->context.enter();
  impl_->restated = true;
  Status copied = impl_->complete_ahead(true);  // what runs again writes over what it has by now, and over its logits
  if (copied.ok() && impl_->ahead_pending && !impl_->logits_copied) {
    copied = impl_->copy_logits(*impl_->ahead_program, impl_->ahead_host_row);
    impl_->logits_copied = copied.ok();
  }
  Status done = impl_->runner->finish();
  if (done.ok()) done = copied;
  if (!done.ok()) return {done.code(), done.message()};
  try {
    return Impl::Explanation(*impl_, row).error();
  } catch (const Error& e) {
    return {ErrorCode::kNumbers, (row.sampled ? "the samplers leave candidates that none may leave, after "
                                              : "the logits are not finite after ") +
                                     std::to_string(row.tokens.size()) +
                                     " tokens; to find out why was not possible: " + e.diagnostics().front().message};
  }
}

}  // namespace tenon
