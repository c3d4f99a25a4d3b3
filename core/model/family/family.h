// This is a model family as its file describes it: which weights it claims, how its numbers and tensors are called in
// both conventions, and which modules it is made of. docs/adding-a-model.md is about such files.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formula.h"
#include "tenon/core/weights.h"

namespace tenon::family {

// This value may be different in a Hugging Face folder and in a GGUF file.
template <class T>
struct ByConvention {
  T huggingface = {}, gguf = {};
  const T& in(std::string_view convention) const { return convention == "gguf" ? gguf : huggingface; }
  T& in(std::string_view convention) { return convention == "gguf" ? gguf : huggingface; }
};

// A number is read from a key of the description. It is a name in formulas below it; true counts as 1, false as 0.
struct Number {
  enum Type { kCount, kReal, kBool };
  std::string name;
  Type type = kCount;
  ByConvention<std::string> key;                       // "*." at its start stands for GGUF's architecture; "": none
  ByConvention<std::optional<Formula>> fallback = {};  // if the key is not there; none: it must be there
  std::optional<Formula> null = {};                    // if config.json has null there; none: that is refused
  bool only_default = false;                           // GGUF has no key for another value
  std::string also = {};                               // another name that config.json may have for the key
};

// This is a key that may be left out, and that has one supported value, or one of a few.
struct ExpectedKey {
  std::string key;
  std::vector<MetadataValue> values;    // any of these; or
  std::optional<Formula> formula = {};  // this whole number
  bool nullable = false;                // null counts as absent
};

// This is a number with a value for each layer: a list of the description has it, or a formula gives it.
struct LayerNumber {
  struct Choice {
    std::string text;                  // an element of the list
    Formula value;                     // stands for this
    std::optional<Formula> when = {};  // and may be there if this holds
  };
  std::string name;
  ByConvention<std::string> key = {};
  std::vector<Choice> choices = {};  // none: the list has numbers
  Formula fallback = {};             // without a list
};

struct RopeSpec {
  std::string name;
  Number theta;
  // If config.json does not say it (partial_rotary_factor), so large a share of a
  // head turns; unset: it always turns whole.
  std::optional<double> partial = {};
  std::optional<double> original_context = {};  // for longrope, if config.json does not say it; unset: the context
  std::vector<std::string> types = {};          // types of scaling that models of the family may have; none: all
  ByConvention<bool> interleaved = {};  // rows of Q and K are stored for pairs (2i, 2i + 1), else (i, i + rotated / 2)
  bool scaled = true;                   // rope_scaling and its like are about it
  // yarn's ramp begins and ends at whole pairs, unless config.json says otherwise.
  ByConvention<bool> whole_pairs = {true, true};
  bool needed = false;     // config.json has to have rope_parameters or rope_scaling
  std::string group = {};  // rope_parameters may have an object of this name for it
};

struct TensorNames {
  std::string name;                  // the house's, "layers.*.attention.q"
  ByConvention<std::string> file;    // without ".weight"; "": the convention has no such tensor
  ByConvention<bool> plus_one = {};  // stored less one
  ByConvention<bool> bare = {};      // the file's name has no ".weight" after it
};

// These tensors have the matrices of all experts, (experts, rows, ...); each expert's part counts as its own tensor.
struct StackedTensors {
  std::string name;                // the file's names begin so: "model.layers.*.mlp.experts.gate_up_proj"
  std::vector<std::string> parts;  // the rows of these come in turns; none: the rows are those of one matrix
  std::map<std::string, std::string> tensors;  // the end of a name -> that of an expert's part: "_blocks" -> "blocks"
  std::vector<std::string> transposed;         // these of the latter are (experts, columns, rows)
};

struct OpSpec {
  std::string use;
  std::optional<Formula> when = {};
  std::vector<std::pair<std::string, std::string>> tensors = {};  // argument, house's name
  std::vector<std::pair<std::string, Formula>> numbers = {};
};

// This says whether a product has a bias.
struct BiasSpec {
  bool stored = false;  // it has if the file holds one; or
  Formula formula = {};
};

struct RopeChoice {
  size_t rope = 0;  // index of Family::ropes
  std::optional<Formula> when = {};
};

// A router has a score for each expert. The experts with the highest scores, each an MLP with a gate, see the row.
struct ExpertsSpec {
  Formula count = {}, chosen = {};  // so many there are, and so many see a row
  Formula inner = {};               // the columns of gate and of up
  Formula renormalised = {};        // if it holds, the weights of the chosen ones have the sum 1
};

struct Block {
  bool attention = false;                   // or
  std::optional<ExpertsSpec> experts = {};  // else an MLP
  std::optional<Formula> when = {};
  std::optional<Formula> parallel = {};  // if it holds, the block takes what the block before it took
  std::vector<OpSpec> before = {}, after = {};
  std::map<std::string, ByConvention<BiasSpec>> bias = {};  // by part: "q"; none: no bias
  // These are for attention:
  std::vector<OpSpec> q_after = {}, k_after = {}, heads = {};
  std::vector<RopeChoice> rope = {};  // the first that holds; none: no rope
  std::optional<Formula> window = {}, scale = {}, softcap = {};
  // If it holds, the layer reads what the last layer before it with its window and its rope has cached, of those that
  // have a cache of their own, and has no K and V.
  std::optional<Formula> shares_cache = {};
  std::string sinks = {};  // the tensor of learned sinks (tenon/sdk/attention_sinks.h), or ""
  // An MLP and experts have these:
  OpSpec activation = {};
  bool gated = true;
};

struct Family {
  std::string name, doc;
  std::string model_class;        // the class in transformers: what config.json calls the architecture
  std::string gguf_architecture;  // such files are written
  std::filesystem::path file;
  ByConvention<std::vector<std::string>> claims = {};
  std::vector<std::string> unless = {};  // but no GGUF file in which all of these keys are there, and not 0
  std::vector<Number> numbers = {};
  ByConvention<std::vector<ExpectedKey>> expected = {};
  std::vector<std::string> ignored_keys = {}, ignored_tensors = {};
  std::vector<RopeSpec> ropes = {};
  std::vector<TensorNames> tensors = {};
  ByConvention<std::vector<StackedTensors>> stacked = {};
  std::vector<LayerNumber> layer_numbers = {};
  std::vector<Block> blocks = {};
  std::vector<OpSpec> after_embedding = {}, before_head = {}, after_head = {};

  const Number* number(const std::string& name) const;
  const TensorNames* tensor(const std::string& name) const;
  // Says whether one matrix has the rows of Q, K and V, or those of gate and up, one after the other.
  bool fused(const Block& block) const;
};

inline constexpr char kLayers[] = "layers.*.";
inline constexpr char kExperts[] = "experts.";                             // "layers.3.experts.5.gate"
inline constexpr char kFusedAttention[] = "qkv", kFusedMlp[] = "gate_up";  // these parts are called so

// Returns the family that claims the weights; nullptr if none does. Throws what read_family() throws.
std::shared_ptr<const Family> family_for(const Weights& weights,
                                         const std::vector<std::filesystem::path>& model_dirs = {});

// Returns the weights with the family's stacked tensors cut into those of each expert; nullptr if they have none. They
// borrow `weights`. Throws Error(kModel) for a tensor that cannot be cut so.
std::unique_ptr<Weights> cut_stacked(const Family& family, const Weights& weights);

// Reads a family file. Throws Error(kConfig) with everything that is wrong with it.
Family read_family(const std::filesystem::path& file);

}  // namespace tenon::family
