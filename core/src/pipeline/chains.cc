// A model states chains of small ops by name; here they become ops with their components, arguments in the places that
// the components publish. Every argument must be given, and none that the op does not have.
#include "chains.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tenon/core/error.h"
#include "tenon/sdk/attention_sinks.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/fop.h"

namespace tenon {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& op, const std::string& what) {
  throw Error(ErrorCode::kModel, path + ": op." + op + ": " + what);
}

std::optional<int32_t> of_heads(const std::string& name, const AttentionDecl* a) {
  if (a == nullptr) return {};
  if (name == "q_heads") return static_cast<int32_t>(a->q_heads);
  if (name == "kv_heads") return a->cache_of ? 0 : static_cast<int32_t>(a->kv_heads);  // x has Q alone
  if (name == "k_dim") return static_cast<int32_t>(a->k_dim);
  if (name == "v_dim") return static_cast<int32_t>(a->v_dim);
  return {};
}

// This has one call with what its op publishes.
class Resolver {
 public:
  Resolver(const std::string& path, const OpCall& call, std::span<const Vector> vectors, const SmallOp& op)
      : path_(path), call_(call), vectors_(vectors), out_{.op = &op, .fop = sdk::abi_struct<tenon_fop>()} {
    out_.fop.id = op.table().id;
  }

  ChainOp resolve(int64_t columns, const AttentionDecl* attention) {
    const tenon_small_op& table = out_.op->table();
    for (uint32_t a = 0; a < table.n_args; ++a) take(table.arg[a], columns, attention);
    for (const auto& [name, value] : call_.vectors) check_known(name);
    for (const auto& [name, value] : call_.numbers) check_known(name);
    return out_;
  }

 private:
  void take(const tenon_op_arg& arg, int64_t columns, const AttentionDecl* attention) {
    known_.insert(arg.name);
    switch (arg.kind) {
      case TENON_ARG_ROWS:
        out_.rows.at(arg.index) = true;
        return;
      case TENON_ARG_VECTOR:
      case TENON_ARG_TABLE:
        out_.vectors.at(arg.index) = vector(arg, columns);
        return;
      case TENON_ARG_NUMBER:
        out_.fop.f[arg.index % std::size(out_.fop.f)] = static_cast<float>(number(arg.name));
        return;
      default:
        out_.fop.i[arg.index % std::size(out_.fop.i)] = integer(arg.name, attention);
    }
  }

  VectorId vector(const tenon_op_arg& arg, int64_t columns) {
    for (const auto& [name, id] : call_.vectors) {
      if (name != arg.name) continue;
      if (arg.kind == TENON_ARG_VECTOR && vectors_[id].columns != columns) {
        refuse(path_, call_.name,
               vectors_[id].path + " has " + std::to_string(vectors_[id].columns) + " elements for " +
                   std::to_string(columns) + " columns");
      }
      return id;
    }
    refuse(path_, call_.name, "the model gives no \"" + std::string(arg.name) + '"');
  }
  double number(const char* wanted) {
    for (const auto& [name, value] : call_.numbers) {
      if (name == wanted) return value;
    }
    refuse(path_, call_.name, "the model gives no \"" + std::string(wanted) + '"');
  }
  int32_t integer(const char* wanted, const AttentionDecl* attention) {
    if (const auto known = of_heads(wanted, attention)) return *known;
    const double value = number(wanted);
    if (std::floor(value) != value || std::abs(value) > INT32_MAX) {
      refuse(path_, call_.name, '"' + std::string(wanted) + "\" must be a whole number");
    }
    return static_cast<int32_t>(value);
  }
  void check_known(const std::string& name) {
    if (known_.contains(name)) return;
    std::string list;
    for (const std::string& k : known_) list += (list.empty() ? "" : ", ") + k;
    refuse(path_, call_.name, "has no argument \"" + name + "\"; it has " + (list.empty() ? "none" : list));
  }

  const std::string& path_;
  const OpCall& call_;
  std::span<const Vector> vectors_;
  ChainOp out_;
  std::set<std::string> known_;
};

bool same_op(const ChainOp& a, const ChainOp& b) {
  return a.op == b.op && a.rows == b.rows && std::equal(std::begin(a.fop.f), std::end(a.fop.f), std::begin(b.fop.f)) &&
         std::equal(std::begin(a.fop.i), std::end(a.fop.i), std::begin(b.fop.i));
}

}  // namespace

std::string ChainOp::name() const {
  if (op == nullptr) return fop.id == sdk::kAttentionSinks ? kSinksOp : "kv_append";
  return op->instance.component().info.name;
}

bool ChainOp::in_place() const {
  return op != nullptr && (op->table().flags & TENON_SMALL_OP_IN_PLACE) != 0;
}

bool ChainOp::joins() const {
  return in_place() && (op->table().flags & TENON_SMALL_OP_BY_COLUMN) != 0 && rows == std::array<bool, 4>{};
}

int64_t ChainOp::columns(const std::string& path, int64_t x) const {
  if (op == nullptr) return sdk::Heads(fop.i).q_columns();  // The cache takes K and V.
  int64_t y = 0;
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (op->table().columns(op->instance.self(), &fop, x, &y, &why) != TENON_OK) refuse(path, name(), text);
  return y;
}

OpChain resolve_chain(const ChainPlace& place, const Chain& chain, Components& components,
                      std::span<const Vector> vectors) {
  OpChain out;
  int64_t columns = place.columns;
  for (const OpCall& call : chain) {
    Resolver resolver(place.path, call, vectors, components.context.op(call.name));
    out.push_back(resolver.resolve(columns, place.attention));
    columns = out.back().columns(place.path, columns);
  }
  return out;
}

ChainOp append_op(const AttentionDecl& a) {
  ChainOp append{.op = nullptr, .fop = sdk::abi_struct<tenon_fop>()};
  append.fop.id = TENON_F_KV_APPEND;
  sdk::Heads(static_cast<int32_t>(a.q_heads), static_cast<int32_t>(a.kv_heads), static_cast<int32_t>(a.k_dim),
             static_cast<int32_t>(a.v_dim))
      .store(append.fop);
  return append;
}

ChainOp sinks_op(const AttentionDecl& a, VectorId logits) {
  ChainOp sinks = append_op(a);
  sinks.fop.id = sdk::kAttentionSinks;
  sinks.vectors[0] = logits;
  return sinks;
}

bool equal(const OpChain& a, const OpChain& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const ChainOp& x, const ChainOp& y) { return same_op(x, y) && x.vectors == y.vectors; });
}

std::optional<OpChain> joined_chain(const std::vector<const OpChain*>& chains,
                                    const std::function<VectorId(const std::vector<VectorId>&)>& join) {
  OpChain out = *chains.front();
  if (chains.size() == 1) return out;
  for (const OpChain* c : chains) {
    const auto alike = [](const ChainOp& x, const ChainOp& y) { return same_op(x, y) && y.joins(); };
    if (!std::equal(out.begin(), out.end(), c->begin(), c->end(), alike)) return std::nullopt;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    for (size_t t = 0; t < out[i].vectors.size(); ++t) {
      if (!out[i].vectors[t]) continue;
      std::vector<VectorId> ids;
      for (const OpChain* c : chains) ids.push_back(*(*c)[i].vectors[t]);
      out[i].vectors[t] = join(ids);
    }
  }
  return out;
}

int64_t columns_after(const std::string& path, const OpChain& chain, size_t n, int64_t x) {
  for (size_t i = 0; i < n; ++i) x = chain[i].columns(path, x);
  return x;
}

std::string names_of(const OpChain& chain, size_t begin, size_t end) {
  std::string text;
  for (size_t i = begin; i < end; ++i) text += (text.empty() ? "" : ", ") + chain[i].name();
  return text;
}

ChainView::ChainView(const OpChain& ops, size_t begin) : chain_(sdk::abi_struct<tenon_chain>()) {
  for (size_t i = begin; i < ops.size(); ++i) pointers_.push_back(&ops[i].fop);
  chain_.n = static_cast<uint32_t>(pointers_.size());
  chain_.op = pointers_.data();
}

ChainView::ChainView(const tenon_fop* ops, size_t n) : chain_(sdk::abi_struct<tenon_chain>()) {
  for (size_t i = 0; i < n; ++i) pointers_.push_back(ops + i);
  chain_.n = static_cast<uint32_t>(pointers_.size());
  chain_.op = pointers_.data();
}

}  // namespace tenon
