#include "recorded_step.h"

namespace tenon {
namespace {

// Makes nothing: a tensor is its number, counted from 1, since 0 is none.
class Recording : public StepBuilder {
 public:
  explicit Recording(bool picks_early) : picks_early_(picks_early) {}
  std::vector<RecordedTensor> run(const Model& model) {
    (void)read(model.record(*this));
    return std::move(tensors_);
  }

  tenon_tid embed(LinearId) override { return made({}); }
  tenon_tid handed_in(int64_t) override { return made({}); }
  tenon_tid tokens() override { return made({}); }
  tenon_tid linear(LinearId linear, tenon_tid x, const std::vector<tenon_tid>& rows, tenon_tid expert) override {
    return product({RecordedModule::kLinear, linear, all_rows_ && expert == 0, !all_rows_}, x, rows, expert);
  }
  tenon_tid joined(JoinedId joined, tenon_tid x, const std::vector<tenon_tid>& rows, tenon_tid expert) override {
    return product({RecordedModule::kJoined, joined, all_rows_ && expert == 0, !all_rows_}, x, rows, expert);
  }
  tenon_tid row_ops(RowOpsId, tenon_tid x, const std::vector<tenon_tid>& rows) override {
    for (const tenon_tid row : rows) (void)read(row);
    return read(x);
  }
  tenon_tid repeat_rows(const RepeatedRows&, tenon_tid x) override { return read(x); }
  void end_repeat() override {}
  tenon_tid as_rows(tenon_tid x) override { return read(x); }
  tenon_tid experts_of(tenon_tid x) override { return read(x); }
  tenon_tid attention(LayerId layer, tenon_tid x) override {
    return taken({RecordedModule::kAttention, layer, false, false}, x);
  }
  tenon_tid attention_of_out_rows(LayerId layer, tenon_tid x) override { return out_rows(attention(layer, x)); }
  // From here on modules run over the rows whose logits are wanted.
  tenon_tid out_rows(tenon_tid x) override {
    all_rows_ = false;
    return read(x);
  }
  bool picks_early() const override { return picks_early_; }

 private:
  tenon_tid made(const RecordedModule& maker) {
    tensors_.push_back({.maker = maker});
    return static_cast<tenon_tid>(tensors_.size());
  }
  tenon_tid taken(const RecordedModule& by, tenon_tid x) {
    tensors_[x - 1].takers.push_back(by);
    return made(by);
  }
  // Returns what something made of x that is no module of interest.
  tenon_tid read(tenon_tid x) {
    tensors_[x - 1].read_otherwise = true;
    return made({});
  }
  tenon_tid product(const RecordedModule& by, tenon_tid x, const std::vector<tenon_tid>& rows, tenon_tid expert) {
    for (const tenon_tid row : rows) (void)read(row);
    if (expert != 0) (void)read(expert);
    return taken(by, x);
  }

  std::vector<RecordedTensor> tensors_;
  bool picks_early_, all_rows_ = true;
};

}  // namespace

std::vector<RecordedTensor> recorded_step(const Model& model, bool picks_early) {
  return Recording(picks_early).run(model);
}

}  // namespace tenon
