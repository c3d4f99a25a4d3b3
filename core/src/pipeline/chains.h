// The pipeline keeps chains of small ops like this: what a model stated, with op components in the place of names.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "components.h"
#include "tenon/core/module.h"

namespace tenon {

struct Vector {
  std::string path;
  std::vector<const WeightTensor*> tensors;    // side by side; or
  std::function<void(std::span<float>)> fill;  // computed
  int64_t rows = 1, columns = 0;
  float plus = 0;                   // is added to each element of the tensors
  std::optional<uint32_t> storage;  // if there is none, nobody needs it as it is
};

struct ChainOp {
  const SmallOp* op = nullptr;                          // nullptr: the cache's append, or the attention's sinks
  tenon_fop fop{};                                      // numbers and integers; tensors are 0 until it is recorded
  std::array<std::optional<VectorId>, 4> vectors = {};  // each has its place in fop.t
  std::array<bool, 4> rows = {};  // true: the rows at that place in fop.t are named when a step is recorded

  std::string name() const;
  bool in_place() const;
  // Returns whether such ops over columns that lie side by side can be one op over all of them, in place.
  bool joins() const;
  // Returns the columns of y if x has so many. Throws Error(kModel) with the op's reason.
  int64_t columns(const std::string& path, int64_t x) const;
};
using OpChain = std::vector<ChainOp>;

// A model states a chain at such a place.
struct ChainPlace {
  const std::string& path;                   // the module's
  int64_t columns;                           // x has so many
  const AttentionDecl* attention = nullptr;  // fills in the integers of heads
};
// Looks up the ops of a chain. Throws Error: kPlugin for an op that is not installed, kModel for
// arguments that it lacks or does not have.
OpChain resolve_chain(const ChainPlace& place, const Chain& chain, Components& components,
                      std::span<const Vector> vectors);
// Returns the cache's append, with the heads of the layer.
ChainOp append_op(const AttentionDecl& attention);
// A layer's learned sinks (tenon/sdk/attention_sinks.h) are an op that the attention alone can do.
inline constexpr char kSinksOp[] = "attention_sinks";
ChainOp sinks_op(const AttentionDecl& attention, VectorId logits);

// Returns whether both do the same with the same vectors.
bool equal(const OpChain& a, const OpChain& b);
// Makes one chain for columns side by side, if their chains are alike. join() makes one vector of several.
std::optional<OpChain> joined_chain(const std::vector<const OpChain*>& chains,
                                    const std::function<VectorId(const std::vector<VectorId>&)>& join);

int64_t columns_after(const std::string& path, const OpChain& chain, size_t n, int64_t x);
std::string names_of(const OpChain& chain, size_t begin, size_t end);

// This is a chain as the boundary has it, while claims are asked for. If ops are recorded, it has their tensors filled
// in; valid as long as they.
class ChainView {
 public:
  explicit ChainView(const OpChain& ops, size_t begin = 0);
  ChainView(const tenon_fop* ops, size_t n);
  const tenon_chain* get() const { return &chain_; }

 private:
  std::vector<const tenon_fop*> pointers_;
  tenon_chain chain_;
};

}  // namespace tenon
