// Reads a family file. Everything that is wrong with it is collected and thrown together, each at its place.
//
// Names are defined in the order of the file: a formula is computed where it stands, with 1 for every name above it, so
// that an unknown name or a mistake in it is found whether or not any model needs it.
#include <fstream>
#include <iterator>
#include <set>

#include "family.h"
#include "fields.h"
#include "tenon/core/files.h"
#include "tensor_reader.h"

namespace tenon::family {
namespace {

using config::Node;

constexpr size_t kMostBytes = 1 << 20;

// The engine asks for these by name. Those that are marked are known of every GGUF file without a key.
struct NeededNumber {
  const char* name;
  bool of_every_gguf;
};
constexpr NeededNumber kNeeded[] = {{"layers", false},   {"width", false},    {"heads", false},
                                    {"kv_heads", false}, {"head_dim", false}, {"ffn", false},
                                    {"vocab", true},     {"context", false},  {"tied", true}};

class FamilyReader {
 public:
  FamilyReader(Family& family, const Node& root) : family_(family), root_(root, "the file", findings_) {}

  void read() {
    if (const Node* node = root_.need("model")) model(*node);
    if (const Node* node = root_.need("numbers")) numbers(*node);
    if (const Node* node = root_.find("expected")) expected(*node);
    if (const Node* node = root_.find("ignored")) ignored(*node);
    if (const Node* node = root_.need("tensors")) read_tensors(*node, findings_, family_);
    if (const Node* node = root_.find("stacked")) read_stacked(*node, findings_, family_);
    if (const Node* node = root_.find("rope")) ropes(*node);
    if (const Node* node = root_.find("embedding")) {
      Fields fields(*node, "embedding", findings_);
      family_.after_embedding = chain(fields, "after", "");
      fields.finish();
    }
    if (const Node* node = root_.need("head")) {
      Fields fields(*node, "head", findings_);
      family_.before_head = chain(fields, "before", "");
      family_.after_head = chain(fields, "after", "");
      fields.finish();
    }
    if (const Node* node = root_.need("layer")) layer(*node);
    root_.finish();
    findings_.throw_if_any({family_.file.string()});
  }

 private:
  void model(const Node& node) {
    Fields fields(node, "model", findings_);
    family_.name = fields.needed_text("name");
    family_.doc = fields.needed_text("doc");
    family_.model_class = fields.needed_text("class");
    if (!family_.name.empty() && family_.name != family_.file.stem()) {
      fields.problem(fields.find("name")->where, "found the name \"" + family_.name +
                                                     "\" in a file that is called after another, \"" +
                                                     family_.file.filename().string() + "\"");
    }
    if (const Node* claims = fields.need("claims")) {
      Fields by(*claims, "model.claims", findings_);
      family_.claims.huggingface = by.texts("huggingface");
      family_.claims.gguf = by.texts("gguf");
      family_.unless = by.texts("unless");
      by.finish();
      if (family_.claims.huggingface.empty()) by.problem(claims->where, "huggingface names no model_type");
    }
    family_.gguf_architecture = fields.needed_text("gguf");
    fields.finish();
  }

  std::optional<Formula> formula(const Node& node, const std::string& label) {
    Formula f;
    f.where = node.where;
    if (const std::string* text = node.text()) {
      f.text = *text;
      ++f.where.column;  // after the quotation mark
    } else if (const auto* whole = std::get_if<int64_t>(&node.value)) {
      f.text = std::to_string(*whole);
    } else if (const auto* real = std::get_if<double>(&node.value)) {
      f.text = config::toml_real(*real);
    } else if (const bool* truth = std::get_if<bool>(&node.value)) {
      f.text = *truth ? "1" : "0";
    } else {
      findings_.add(node.where, label + ": found " + config::describe_found(node) + ", expected a number or a formula");
      return {};
    }
    try {
      static_cast<void>(scope_.value(f));
    } catch (const Error& e) {
      for (const Diagnostic& d : e.diagnostics()) findings_.add(d.where, label + ": " + d.message);
    }
    return f;
  }
  std::optional<Formula> formula(Fields& fields, const std::string& key) {
    const Node* node = fields.find(key);
    return node == nullptr ? std::nullopt : formula(*node, fields.label() + "." + key);
  }
  // Reads the fields of a number that is read from a key.
  Number number(Fields& fields, const std::string& name) {
    Number n;
    n.name = name;
    n.key = {fields.text("huggingface"), fields.text("gguf")};
    if (const Node* type = fields.find("type")) {
      const std::string text = type->text() == nullptr ? "" : *type->text();
      n.type = text == "real" ? Number::kReal : text == "bool" ? Number::kBool : Number::kCount;
      if (text != "real" && text != "bool" && text != "count") {
        fields.wrong(*type, "type", "\"count\", \"real\" or \"bool\"");
      }
    }
    if (const Node* fallback = fields.find("default")) {
      n.fallback = by_convention<std::optional<Formula>>(
          *fallback, fields.label() + ".default", findings_,
          [&](const Node& node, const std::string& label) { return formula(node, label); });
    }
    n.null = formula(fields, "null");
    n.only_default = fields.boolean("only_default", false);
    n.also = fields.text("also");
    return n;
  }
  void numbers(const Node& node) {
    Fields fields(node, "numbers", findings_);
    for (const auto& [name, entry] : fields.in_order()) {
      Fields of(*entry, "numbers." + name, findings_);
      if (!define(name, *entry)) continue;
      Number n = number(of, name);
      of.finish();
      const auto needed =
          std::find_if(std::begin(kNeeded), std::end(kNeeded), [&](const auto& k) { return k.name == name; });
      const bool known = needed != std::end(kNeeded) && needed->of_every_gguf;
      for (const char* convention : kConventions) {
        if (!n.key.in(convention).empty() || n.fallback.in(convention)) continue;
        if (known && convention == std::string("gguf")) continue;
        of.problem(entry->where, std::string("has no key and no default for ") + convention);
      }
      family_.numbers.push_back(std::move(n));
    }
    for (const NeededNumber& n : kNeeded) {
      if (family_.number(n.name) == nullptr) fields.need(n.name);
    }
  }
  // Makes it a name for the formulas below.
  bool define(const std::string& name, const Node& node) {
    if (Scope::is_name(name)) {
      scope_.set(name, 1);
      return true;
    }
    findings_.add(node.key_where, config::quote(name) +
                                      " is no name for a number; expected lower-case letters, digits and \"_\", and a "
                                      "letter first");
    return false;
  }

  static std::optional<MetadataValue> plain(const Node& node) {
    if (const auto* b = std::get_if<bool>(&node.value)) return *b;
    if (const auto* i = std::get_if<int64_t>(&node.value)) return *i;
    if (const auto* d = std::get_if<double>(&node.value)) return *d;
    if (node.text() != nullptr) return *node.text();
    return {};
  }
  void expected(const Node& node) {
    Fields fields(node, "expected", findings_);
    for (const char* convention : kConventions) {
      const Node* keys = fields.find(convention);
      if (keys == nullptr) continue;
      Fields of(*keys, std::string("expected.") + convention, findings_);
      for (const auto& [key, value] : of.in_order()) {
        ExpectedKey one;
        one.key = key;
        if (value->table() != nullptr) {
          Fields is(*value, of.label() + "." + key, findings_);
          if (const Node* formula_node = is.find("is")) one.formula = formula(*formula_node, is.label());
          if (const Node* single = is.find("value")) one.values.push_back(plain(*single).value_or(false));
          one.nullable = is.boolean("null", false);
          is.finish();
        }
        const config::Array single(1, *value), none;
        for (const Node& each : value->array() != nullptr   ? *value->array()
                                : value->table() != nullptr ? none
                                                            : single) {
          if (const auto v = plain(each)) one.values.push_back(*v);
          if (!plain(each))
            of.wrong(each, key, "a plain value, an array of them, { is = FORMULA } or { value = VALUE, null = true }");
        }
        if (value->array() != nullptr && value->array()->empty()) one.values.emplace_back(std::vector<int64_t>());
        family_.expected.in(convention).push_back(std::move(one));
      }
    }
    fields.finish();
  }
  void ignored(const Node& node) {
    Fields fields(node, "ignored", findings_);
    family_.ignored_keys = fields.texts("keys");
    family_.ignored_tensors = fields.texts("tensors");
    fields.finish();
  }

  void ropes(const Node& node) {
    Fields fields(node, "rope", findings_);
    for (const auto& [name, entry] : fields.in_order()) {
      Fields of(*entry, "rope." + name, findings_);
      RopeSpec rope;
      rope.name = name;
      if (const Node* theta = of.need("theta")) {
        Fields key(*theta, of.label() + ".theta", findings_);
        rope.theta = number(key, "theta");
        rope.theta.type = Number::kReal;
        key.finish();
      }
      if (const Node* partial = of.find("partial")) {
        const auto f = formula(*partial, of.label() + ".partial");
        if (f) rope.partial = scope_.value(*f);
      }
      if (const Node* first = of.find("original_context")) {
        const auto f = formula(*first, of.label() + ".original_context");
        if (f) rope.original_context = scope_.value(*f);
      }
      rope.types = of.texts("types");
      rope.interleaved = truths(of, of.need("interleaved"), "interleaved", findings_);
      rope.scaled = of.boolean("scaled", true);
      if (const Node* whole = of.find("whole_pairs")) rope.whole_pairs = truths(of, whole, "whole_pairs", findings_);
      rope.needed = of.boolean("needed", false);
      rope.group = of.text("group");
      of.finish();
      family_.ropes.push_back(std::move(rope));
    }
  }

  // Says whether an argument names a tensor: "norm", or of a layer "attention_norm", or a bias, "norm.bias".
  bool names_tensor(const std::string& text, const std::string& prefix) const {
    const auto there = [&](const std::string& name) { return family_.tensor(prefix + name) != nullptr; };
    return there(text) || (text.ends_with(".bias") && there(text.substr(0, text.size() - 5)));
  }
  std::vector<OpSpec> chain(Fields& of, const std::string& key, const std::string& prefix) {
    std::vector<OpSpec> ops;
    const Node* node = of.find(key);
    if (node == nullptr) return ops;
    if (node->array() == nullptr) {
      of.wrong(*node, key, "an array of ops");
      return ops;
    }
    for (const Node& each : *node->array()) ops.push_back(op(each, of.label() + "." + key, prefix));
    return ops;
  }
  OpSpec op(const Node& node, const std::string& label, const std::string& prefix) {
    Fields fields(node, label, findings_);
    OpSpec op;
    op.use = fields.needed_text("use");
    op.when = formula(fields, "when");
    for (const auto& [name, value] : fields.in_order()) {
      if (name == "use" || name == "when") continue;
      const std::string* text = value->text();
      if (text != nullptr && (names_tensor(*text, prefix) || text->find('.') != std::string::npos)) {
        op.tensors.emplace_back(name, *text);
        if (!names_tensor(*text, prefix)) unknown_tensor(fields, *value, prefix);
      } else if (const auto f = formula(*value, fields.label() + "." + name)) {
        op.numbers.emplace_back(name, *f);
      }
    }
    return op;
  }
  void unknown_tensor(Fields& fields, const Node& value, const std::string& prefix) {
    std::vector<std::string> known;
    for (const TensorNames& t : family_.tensors) {
      if (t.name.starts_with(prefix)) known.push_back(t.name.substr(prefix.size()));
    }
    fields.problem(value.where,
                   "there is no tensor " + config::quote(*value.text()) + config::suggestion(*value.text(), known));
  }

  void layer(const Node& node) {
    Fields fields(node, "layer", findings_);
    scope_.set("layer", 1);
    for (const auto& [name, entry] : fields.in_order()) {
      if (name != "block" && define(name, *entry)) family_.layer_numbers.push_back(layer_number(name, *entry));
    }
    const Node* blocks = fields.need("block");
    if (blocks == nullptr) return;
    if (blocks->array() == nullptr) return fields.wrong(*blocks, "block", "[[layer.block]], one for each block");
    for (const Node& each : *blocks->array()) block(each);
  }
  LayerNumber layer_number(const std::string& name, const Node& node) {
    LayerNumber n;
    n.name = name;
    const std::string label = "layer." + name;
    if (node.table() == nullptr) {
      n.fallback = formula(node, label).value_or(Formula());
      return n;
    }
    Fields fields(node, label, findings_);
    n.key = {fields.text("huggingface"), fields.text("gguf")};
    if (const Node* fallback = fields.need("default"))
      n.fallback = formula(*fallback, label + ".default").value_or(Formula());
    if (const Node* choices = fields.find("values")) {
      Fields values(*choices, label + ".values", findings_);
      for (const auto& [text, value] : values.in_order()) {
        LayerNumber::Choice choice;
        choice.text = text;
        if (value->table() != nullptr) {
          Fields of(*value, values.label() + "." + text, findings_);
          if (const Node* is = of.need("is")) choice.value = formula(*is, of.label()).value_or(Formula());
          choice.when = formula(of, "when");
          of.finish();
        } else {
          choice.value = formula(*value, values.label() + "." + text).value_or(Formula());
        }
        n.choices.push_back(std::move(choice));
      }
    }
    fields.finish();
    return n;
  }

  ByConvention<BiasSpec> bias(const Node& node, const std::string& label) {
    return by_convention<BiasSpec>(node, label, findings_, [&](const Node& n, const std::string& at) {
      BiasSpec spec;
      spec.stored = n.text() != nullptr && *n.text() == "stored";
      spec.formula.text = "0";
      if (!spec.stored) spec.formula = formula(n, at).value_or(Formula());
      return spec;
    });
  }
  void block(const Node& node) {
    Fields fields(node, "layer.block", findings_);
    Block b;
    const std::string use = fields.needed_text("use");
    if (use != "attention" && use != "mlp" && use != "experts" && fields.find("use") != nullptr) {
      fields.wrong(*fields.find("use"), "use", "\"attention\", \"mlp\" or \"experts\"");
      return;
    }
    b.attention = use == "attention";
    b.when = formula(fields, "when");
    b.parallel = formula(fields, "parallel");
    if (b.parallel && family_.blocks.empty()) {
      fields.problem(fields.find("parallel")->where, "parallel stands in the first block; expected another before it");
    }
    b.before = chain(fields, "before", kLayers);
    if (use == "experts") {
      experts(fields, b);
    } else {
      b.after = chain(fields, "after", kLayers);
    }
    if (b.attention) {
      attention(fields, b);
    } else {
      read_activation(fields, b);
      if (!b.experts) b.gated = fields.boolean("gated", true);
    }
    const std::vector<std::string> parts = parts_of(b);
    const Node* biases = fields.find("bias");
    if (biases != nullptr) read_biases(*biases, parts, b);
    fields.finish();
    for (const std::string& part : parts) {
      const std::string name = kLayers + use + "." + part;
      if (!use.empty() && family_.tensor(name) == nullptr) {
        fields.problem(node.where, "needs the tensor \"" + name + "\", which [tensors] does not have");
      }
    }
    family_.blocks.push_back(std::move(b));
  }
  // Reads an op by its name, or with numbers: { use = "clamped_swiglu", alpha = 1.702, limit = 7 }.
  void read_activation(Fields& fields, Block& b) {
    const Node* node = fields.need("activation");
    if (node == nullptr) return;
    if (node->text() != nullptr) {
      b.activation.use = *node->text();
      return;
    }
    if (node->table() == nullptr) return fields.wrong(*node, "activation", "an op, by its name or with its numbers");
    b.activation = op(*node, fields.label() + ".activation", kLayers);
    if (b.activation.tensors.empty() && !b.activation.when) return;
    fields.wrong(*node, "activation", "an op with numbers alone");
  }
  void experts(Fields& fields, Block& b) {
    b.experts.emplace();
    const auto needed = [&](const char* key, Formula& to) {
      if (const Node* node = fields.need(key)) to = formula(*node, fields.label() + "." + key).value_or(Formula());
    };
    needed("count", b.experts->count);
    needed("chosen", b.experts->chosen);
    needed("inner", b.experts->inner);
    needed("renormalised", b.experts->renormalised);
  }
  // Returns the products of a block.
  std::vector<std::string> parts_of(const Block& b) const {
    if (b.attention) {
      return family_.fused(b) ? std::vector<std::string>{kFusedAttention, "o"}
                              : std::vector<std::string>{"q", "k", "v", "o"};
    }
    if (b.experts) return {"router", "*.gate", "*.up", "*.down"};
    if (family_.fused(b)) return {kFusedMlp, "down"};
    return b.gated ? std::vector<std::string>{"gate", "up", "down"} : std::vector<std::string>{"up", "down"};
  }
  void read_biases(const Node& node, const std::vector<std::string>& parts, Block& b) {
    const auto is_part = [&](const auto& entry) {
      return std::find(parts.begin(), parts.end(), entry.first) != parts.end();
    };
    const std::string label = "layer.block.bias";
    if (node.table() == nullptr || std::none_of(node.table()->begin(), node.table()->end(), is_part)) {
      for (const std::string& part : parts) b.bias[part] = bias(node, label);
      return;
    }
    Fields each(node, label, findings_);
    for (const std::string& part : parts) {
      if (const Node* one = each.find(part)) b.bias[part] = bias(*one, label + "." + part);
    }
    each.finish();
  }
  void attention(Fields& fields, Block& b) {
    b.q_after = chain(fields, "q_after", kLayers);
    b.k_after = chain(fields, "k_after", kLayers);
    b.heads = chain(fields, "heads", kLayers);
    if (family_.fused(b) && !(b.q_after.empty() && b.k_after.empty())) {
      fields.problem(fields.where(), "q_after and k_after need Q and K as matrices of their own, but [tensors] has \"" +
                                         std::string(kLayers) + "attention." + kFusedAttention + "\"");
    }
    b.window = formula(fields, "window");
    b.scale = formula(fields, "scale");
    b.softcap = formula(fields, "softcap");
    b.shares_cache = formula(fields, "shares_cache");
    b.sinks = fields.text("sinks");
    if (!b.sinks.empty() && !names_tensor(b.sinks, kLayers)) unknown_tensor(fields, *fields.find("sinks"), kLayers);
    const Node* rope = fields.find("rope");
    if (rope == nullptr) return;
    if (rope->text() != nullptr) return choose_rope(fields, *rope, {}, b);
    if (rope->array() == nullptr)
      return fields.wrong(*rope, "rope", "the name of a rope, or an array of { use, when }");
    for (const Node& each : *rope->array()) {
      Fields of(each, "layer.block.rope", findings_);
      const Node* use = of.need("use");
      const std::optional<Formula> when = formula(of, "when");
      if (use != nullptr) choose_rope(of, *use, when, b);
      of.finish();
    }
  }
  void choose_rope(Fields& fields, const Node& name, std::optional<Formula> when, Block& b) {
    std::vector<std::string> known;
    for (const RopeSpec& r : family_.ropes) known.push_back(r.name);
    const auto found = name.text() == nullptr ? known.end() : std::find(known.begin(), known.end(), *name.text());
    if (found == known.end())
      return fields.wrong(name, "",
                          known.empty() ? "a rope, of which there is none" : "one of " + config::listed(known));
    RopeChoice choice;
    choice.rope = static_cast<size_t>(found - known.begin());
    choice.when = std::move(when);
    b.rope.push_back(std::move(choice));
  }

  Family& family_;
  config::Findings findings_;
  Fields root_;
  Scope scope_;
};

}  // namespace

const Number* Family::number(const std::string& wanted) const {
  const auto found = std::find_if(numbers.begin(), numbers.end(), [&](const Number& n) { return n.name == wanted; });
  return found == numbers.end() ? nullptr : &*found;
}

const TensorNames* Family::tensor(const std::string& wanted) const {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const TensorNames& t) { return t.name == wanted; });
  return found == tensors.end() ? nullptr : &*found;
}

bool Family::fused(const Block& block) const {
  const std::string layers = kLayers;
  if (block.experts) return false;
  return block.attention ? tensor(layers + "attention." + kFusedAttention) != nullptr
                         : block.gated && tensor(layers + "mlp." + kFusedMlp) != nullptr;
}

Family read_family(const std::filesystem::path& file) {
  std::error_code error;
  const std::string text = read_start(file, kMostBytes + 1, error);
  if (error) throw Error(ErrorCode::kIo, {file.string()}, "cannot read the model family: " + error.message());
  if (text.size() > kMostBytes)
    throw Error(ErrorCode::kConfig, {file.string()}, "more than 1 MiB, too large for a model family");
  Family family;
  family.file = file;
  Node root;
  root.where.file = file.string();
  root.value = config::parse_toml(file.string(), text);
  FamilyReader(family, root).read();
  return family;
}

}  // namespace tenon::family
