// People are shown this text of a family: what it claims and what it is made of.
#include <algorithm>

#include "family.h"
#include "tenon/core/module.h"

namespace tenon {
namespace family {
namespace {

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
  return text.empty() ? "none" : text;
}

std::string op_text(const OpSpec& op) {
  std::string arguments;
  for (const auto& [name, tensor] : op.tensors) arguments += (arguments.empty() ? "" : ", ") + tensor;
  for (const auto& [name, formula] : op.numbers) {
    arguments += (arguments.empty() ? "" : ", ") + name + " " + formula.text;
  }
  return op.use + "(" + arguments + ")";
}

std::string chain_text(const std::string& title, const std::vector<OpSpec>& chain) {
  std::vector<std::string> ops;
  for (const OpSpec& op : chain) ops.push_back(op_text(op));
  return chain.empty() ? "" : "  " + title + ": " + listed(ops) + "\n";
}

std::string formula_text(const std::string& title, const std::optional<Formula>& formula) {
  return formula ? "  " + title + ": " + formula->text + "\n" : "";
}

std::string block_text(const Family& family, const Block& b) {
  std::string text = b.attention ? "attention" : b.gated ? "mlp with a gate" : "mlp without a gate";
  if (b.experts) text = b.experts->chosen.text + " of " + b.experts->count.text + " experts, each an mlp with a gate";
  text = "\n" + text + (b.when ? ", in layers in which " + b.when->text : "") + "\n";
  if (b.parallel) text += "  takes what the block before it took, if " + b.parallel->text + "\n";
  text += chain_text("before", b.before) + chain_text("after q", b.q_after) + chain_text("after k", b.k_after) +
          chain_text("over heads", b.heads);
  for (const RopeChoice& r : b.rope) {
    text += "  rope: " + family.ropes[r.rope].name + (r.when ? ", if " + r.when->text : "") + "\n";
  }
  text += formula_text("window", b.window) + formula_text("scale", b.scale) + formula_text("softcap", b.softcap) +
          formula_text("reads the cache of an earlier layer, if", b.shares_cache);
  if (!b.attention)
    text += "  activation: " + (b.activation.numbers.empty() ? b.activation.use : op_text(b.activation)) + "\n";
  if (!b.sinks.empty()) text += "  learned sinks: " + b.sinks + "\n";
  std::vector<std::string> biased;
  for (const auto& [part, spec] : b.bias) biased.push_back(part);
  if (!biased.empty()) text += "  bias, where the weights have it: " + listed(biased) + "\n";
  return text + chain_text("after", b.after) + "  then added to what the block was given\n";
}

std::string row(std::string name, const std::string& first, const std::string& second) {
  const auto padded = [](std::string text, size_t width) {
    text.resize(std::max(width, text.size()), ' ');
    return text;
  };
  return "  " + padded(std::move(name), 26) + " " + padded(first.empty() ? "-" : first, 44) + " " +
         (second.empty() ? "-" : second) + "\n";
}

}  // namespace
}  // namespace family

std::string family_text(const std::filesystem::path& file) {
  const family::Family f = family::read_family(file);
  std::string text = "model." + f.name + ": " + f.doc + "\n" + f.file.string() + "\nclaims model_type " +
                     family::listed(f.claims.huggingface) + " of Hugging Face, architecture " +
                     family::listed(f.claims.gguf) + " of GGUF\n\nnumbers\n";
  for (const family::Number& n : f.numbers) text += family::row(n.name, n.key.huggingface, n.key.gguf);
  text += "\ntensors\n";
  for (const family::TensorNames& t : f.tensors) text += family::row(t.name, t.file.huggingface, t.file.gguf);
  for (const char* convention : {"huggingface", "gguf"}) {
    for (const family::StackedTensors& s : f.stacked.in(convention)) {
      text += "\nthe matrices of all experts as one tensor (" + std::string(convention) + "): " + s.name +
              "\n  cut into those of each" +
              (s.parts.empty() ? "" : ", whose rows come in turns: " + family::listed(s.parts)) + "\n";
    }
  }
  text += "\nembedding\n" + family::chain_text("after", f.after_embedding);
  for (const family::Block& b : f.blocks) text += family::block_text(f, b);
  return text + "\nhead\n" + family::chain_text("before", f.before_head) + family::chain_text("after", f.after_head);
}

}  // namespace tenon
