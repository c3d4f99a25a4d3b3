// The products that a model declares become sites. Those that stand side by side become one site, their chains one
// chain where they are alike; a site is cut where its scheme changes.
//
// A chain stands before the product, after one matrix of a site (`each`), or after the whole site; ops move between
// these lists and are never in two of them.
#include "declared.h"

#include <algorithm>

#include "../../model/weights/layout.h"
#include "../../model/weights/metadata_ledger.h"
#include "tenon/core/error.h"
#include "tenon/sdk/attention_sinks.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/gguf_blocks.h"

namespace tenon {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

bool is_float(uint32_t format) {
  return format == TENON_F32 || format == TENON_F16 || format == TENON_BF16;
}

std::string last_name(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? path : path.substr(dot + 1);
}

// Returns the products of an attention: three, or one that has the columns of all, or that of Q alone.
std::vector<LinearId> products_of(const AttentionDecl& d) {
  if (d.cache_of || (d.q == d.k && d.q == d.v)) return {d.q};
  return {d.q, d.k, d.v};
}

// It makes "qkv" of "q", "k", "v", and "gate_up" of "gate", "up".
std::string joined_name(const std::vector<std::string>& names) {
  const bool letters = std::all_of(names.begin(), names.end(), [](const auto& n) { return n.size() == 1; });
  std::string all;
  for (const std::string& n : names) all += (all.empty() || letters ? "" : "_") + n;
  return all;
}

}  // namespace

tenon_format format_of(const std::vector<tenon_format>& formats, size_t shape) {
  if (formats.empty()) return TENON_F32;
  return formats[shape];
}

int64_t Site::total_rows() const {
  int64_t n = 0;
  for (const SiteMatrix& m : decl.mats) n += m.rows;
  return n;
}

size_t Site::done_after(const tenon_claim& claim) const {
  const size_t own = groups.front().after.size();
  return groups.size() == 1 && claim.epi > own ? claim.epi - own : 0;
}

bool Site::has_sinks() const {
  return !after.empty() && after.back().fop.id == sdk::kAttentionSinks;
}

const ChainOp* Site::rope_of_queries() const {
  return queries_turn_last ? &after[after.size() - for_attention()] : nullptr;
}

tenon_kv_geometry kv_geometry_of(const AttentionDecl& d) {
  auto g = sdk::abi_struct<tenon_kv_geometry>();
  g.layer = d.cache_layer;
  g.heads = d.kv_heads;
  g.k_dim = d.k_dim;
  g.v_dim = d.v_dim;
  g.window = d.window;
  return g;
}

tenon_kv_view as_read_by(const AttentionDecl& d, tenon_kv_view view) {
  if (d.cache_of) view.weight_rows = 0;
  return view;
}

tenon_attn attention_of(const AttentionDecl& d, const ChainView& pro, tenon_format out_format) {
  auto a = sdk::abi_struct<tenon_attn>();
  a.q_heads = d.q_heads;
  a.kv_heads = d.kv_heads;
  a.k_dim = d.k_dim;
  a.v_dim = d.v_dim;
  a.window = d.window;
  a.scale = d.scale;
  a.softcap = d.softcap;
  a.out_format = out_format;
  a.pro = pro.get();
  return a;
}

int64_t SiteGroup::rows(const Site& site) const {
  int64_t n = 0;
  for (const size_t m : mats) n += site.decl.mats[m].rows;
  return n;
}

const WeightTensor* plain_tensor(const Matrix& matrix) {
  if (matrix.tensors.size() != 1 || matrix.tensors.front()->name != matrix.name + ".weight") return nullptr;
  return sdk::can_unpack(matrix.tensors.front()->format) ? matrix.tensors.front() : nullptr;
}

void Declared::refuse_in(uint32_t file, std::string what) {
  Diagnostic finding;
  if (file < weights_.files().size()) finding.where.file = weights_.files()[file].string();
  finding.message = std::move(what);
  findings_.add(std::move(finding));
}

void Declared::refuse_tensor(const WeightTensor& t, const std::string& what) {
  refuse_in(t.file, "tensor " + weights::in_quotes(t.name) + " is " + weights::describe(t) + what);
}

void Declared::wrong_tensor(const WeightTensor& t, const std::string& expected) {
  refuse_tensor(t, ", expected " + expected);
}

void Declared::check(std::span<const std::string> harmless) {
  for (const WeightTensor& t : weights_.tensors()) {
    if (used_.contains(t.name) || weights::matches_any(t.name, harmless)) continue;
    refuse_tensor(t, t.name.find("lora_") == std::string::npos
                         ? ": the model computes nothing with it; expected only tensors of its architecture and layers"
                         : ": an adapter is not applied; expected weights that it has been merged into");
  }
  const auto is_plain = [](const Matrix& m) { return plain_tensor(m) != nullptr; };
  const auto plain = [&](const LinearDecl& d) {
    return d.experts.empty() ? is_plain(d.matrix) : std::all_of(d.experts.begin(), d.experts.end(), is_plain);
  };
  // The matrices that it describes may be those of another part.
  const bool whole = !wanted_.range;
  if (whole && !description_.empty() && std::all_of(linears_.begin(), linears_.end(), plain)) {
    refuse(
        "quantization_config is " + weights::in_quotes(description_) +
        ", but every matrix is stored plainly, so nothing reads it; expected the quantized tensors that it describes, "
        "or none");
  }
  findings_.throw_if_any();
}

// Only the scheme of a matrix knows which shapes are right, unless the matrix is plain.
void Declared::check_matrix(const Matrix& matrix, const LinearDecl& decl) {
  const std::vector<int64_t> expected = {decl.matrix.rows, decl.columns};
  const WeightTensor* plain = plain_tensor(matrix);
  if (plain != nullptr && plain->shape != expected) wrong_tensor(*plain, "the shape " + shape_text(expected));
  for (const WeightTensor* t : matrix.tensors) {
    uses(*t);
    if (t->shape.size() <= std::size(tenon_stored{}.dim)) continue;
    wrong_tensor(*t, "at most 4 dimensions of a tensor of a matrix");
  }
  if (decl.experts.empty()) return;
  const std::string differs = difference_of(decl.experts.front(), matrix);
  if (differs.empty()) return;
  refuse("matrices \"" + decl.experts.front().name + "\" and \"" + matrix.name + "\" of " + decl.matrix.path +
         " are not stored alike, as those of all experts must be: " + differs);
}

std::string Declared::difference_of(const Matrix& a, const Matrix& b) {
  const auto suffix = [](const Matrix& of, size_t i) {
    return i < of.tensors.size() ? of.tensors[i]->name.substr(of.name.size()) : std::string();
  };
  const auto is = [&](const WeightTensor& t) { return weights::in_quotes(t.name) + " is " + weights::describe(t); };
  for (size_t i = 0; i < std::max(a.tensors.size(), b.tensors.size()); ++i) {
    const std::string of_a = suffix(a, i), of_b = suffix(b, i);
    if (of_a != of_b) {
      // Tensors stand in the order of their names, so the lesser of two names is one that the other matrix lacks.
      const bool only_a = !of_a.empty() && (of_b.empty() || of_a < of_b);
      const Matrix &has = only_a ? a : b, &lacks = only_a ? b : a;
      return "tensor " + is(*has.tensors[i]) + ", and there is no " + weights::in_quotes(lacks.name + suffix(has, i));
    }
    if (a.tensors[i]->format != b.tensors[i]->format || a.tensors[i]->shape != b.tensors[i]->shape) {
      return "tensor " + is(*a.tensors[i]) + ", and " + is(*b.tensors[i]);
    }
  }
  return "";
}

LinearId Declared::linear(LinearDecl decl) {
  if (decl.experts.empty()) check_matrix(decl.matrix, decl);
  for (const Matrix& m : decl.experts) check_matrix(m, decl);
  linears_.push_back(std::move(decl));
  return static_cast<LinearId>(linears_.size() - 1);
}

JoinedId Declared::joined(JoinedDecl decl) {
  joined_.push_back(std::move(decl));
  return static_cast<JoinedId>(joined_.size() - 1);
}

VectorId Declared::vector(std::string path, std::vector<const WeightTensor*> tensors, int64_t length) {
  Vector v{.path = std::move(path), .tensors = std::move(tensors), .fill = {}, .columns = length, .storage = {}};
  int64_t found = 0;
  bool right = true;
  for (const WeightTensor* t : v.tensors) {
    uses(*t);
    const bool fits = t->shape.size() == 1 && is_float(t->format) && (v.tensors.size() > 1 || t->shape[0] == length);
    if (!fits)
      wrong_tensor(*t, "f32, f16 or bf16 " + (v.tensors.size() > 1 ? "of one dimension" : shape_text({length})));
    right = right && fits;
    if (right) found += t->shape[0];
  }
  if (right && v.tensors.size() > 1 && found != length) {
    refuse(v.path + ": the tensors from \"" + v.tensors.front()->name + "\" to \"" + v.tensors.back()->name +
           "\" have " + std::to_string(found) + " elements together, expected " + std::to_string(length));
  }
  vectors.push_back(std::move(v));
  return static_cast<VectorId>(vectors.size() - 1);
}

VectorId Declared::table(std::string path, int64_t rows, int64_t columns, std::function<void(std::span<float>)> fill) {
  Vector v{
      .path = std::move(path), .tensors = {}, .fill = std::move(fill), .rows = rows, .columns = columns, .storage = {}};
  vectors.push_back(std::move(v));
  return static_cast<VectorId>(vectors.size() - 1);
}

std::string Declared::why_unshared(const AttentionDecl& decl) const {
  if (!decl.cache_of) return "";
  if (*decl.cache_of >= layers.size()) return "reads the cache of a layer that does not stand before it";
  const AttentionDecl& own = layers[*decl.cache_of].decl;
  const std::string reads = "reads the cache of " + own.path + ", ";
  if (own.cache_of) return reads + "which has none and reads that of " + layers[*own.cache_of].decl.path;
  const auto heads = [](const AttentionDecl& d) {
    return std::to_string(d.kv_heads) + " KV heads of " + std::to_string(d.k_dim) + " and " + std::to_string(d.v_dim) +
           " elements";
  };
  if (heads(own) != heads(decl)) return reads + "which has " + heads(own) + ", expected " + heads(decl);
  const auto window = [](const AttentionDecl& d) {
    return d.window == 0 ? "no window" : "a window of " + std::to_string(d.window) + " positions";
  };
  if (own.window != decl.window) return reads + "which has " + window(own) + ", expected " + window(decl);
  return "";
}

LayerId Declared::attention(AttentionDecl decl) {
  if (const std::string why = why_unshared(decl); !why.empty()) {
    refuse(decl.path + " " + why);
    decl.cache_of.reset();
  }
  decl.cache_layer = decl.cache_of ? layers[*decl.cache_of].decl.cache_layer : cache_layers_++;
  layers.push_back({.decl = std::move(decl), .cache = {}, .claims = {}, .out_formats = {}});
  return static_cast<LayerId>(layers.size() - 1);
}

RowOpsId Declared::row_ops(RowOpsDecl decl) {
  ops_of_rows.push_back({.decl = std::move(decl)});
  return static_cast<RowOpsId>(ops_of_rows.size() - 1);
}

LayerRange Declared::layer_range(uint32_t all) const {
  const LayerRange range = wanted_.range.value_or(LayerRange{0, wanted_.layers == 0 ? all : wanted_.layers});
  const uint64_t end = uint64_t{range.first} + range.layers;
  if (end <= all) return range;
  throw Error(ErrorCode::kConfig,
              "model.layers: found " + std::to_string(end) + ", but the model has " + std::to_string(all) + " layers");
}

VectorId Declared::side_by_side(const std::string& path, const std::vector<VectorId>& ids) {
  Vector v{.path = path, .tensors = {}, .fill = {}, .storage = {}};
  for (const VectorId id : ids) {
    v.tensors.insert(v.tensors.end(), vectors[id].tensors.begin(), vectors[id].tensors.end());
    v.columns += vectors[id].columns;
    v.plus = vectors[id].plus;
  }
  vectors.push_back(std::move(v));
  return static_cast<VectorId>(vectors.size() - 1);
}

SiteId Declared::add_site(const std::vector<LinearId>& linears, const AttentionDecl* attention, const Chain& after) {
  const LinearDecl& first = linears_[linears.front()];
  Site site;
  const std::string& path = first.matrix.path;
  site.decl = {.path = path,
               .layer = first.layer,
               .columns = first.columns,
               .mats = {},
               .experts = static_cast<uint32_t>(first.experts.size()),
               .product = first.product,
               .lookup = first.lookup,
               .chosen = first.chosen};
  site.before = resolve_chain({path, first.columns}, first.before, components_, vectors);
  site.looked_up = resolve_chain({path, first.columns}, first.looked_up, components_, vectors);
  std::vector<std::string> names;
  for (const LinearId id : linears) {
    const LinearDecl& d = linears_[id];
    const Matrix& m = d.matrix;
    site.decl.mats.push_back({m.path, m.rows, d.experts.empty() ? std::vector{m} : d.experts});
    names.push_back(last_name(m.path));
    site.each.push_back(resolve_chain({m.path, m.rows}, d.after, components_, vectors));
    if (d.columns != first.columns || d.experts.size() != first.experts.size() ||
        !equal(resolve_chain({m.path, d.columns}, d.before, components_, vectors), site.before)) {
      throw Error(ErrorCode::kModel, m.path + " and " + path + " stand side by side and are not of the same x");
    }
    site_of_linear_[id] = static_cast<SiteId>(sites.size());
  }
  if (linears.size() == 1) {
    site.after = std::move(site.each.front());
    site.each.clear();
  } else {
    site.decl.path = path.substr(0, path.size() - names.front().size()) + joined_name(names);
  }
  const int64_t columns = columns_after(site.decl.path, site.after, site.after.size(), site.total_rows());
  const bool sinks = !after.empty() && after.back().name == kSinksOp;
  const OpChain over_all = resolve_chain({site.decl.path, columns, attention},
                                         Chain(after.begin(), after.end() - (sinks ? 1 : 0)), components_, vectors);
  site.after.insert(site.after.end(), over_all.begin(), over_all.end());
  if (attention != nullptr && !attention->cache_of) site.after.push_back(append_op(*attention));
  if (sinks) site.after.push_back(sinks_op(*attention, after.back().vectors.front().second));
  sites.push_back(std::move(site));
  return static_cast<SiteId>(sites.size() - 1);
}

void Declared::make_sites() {
  std::map<LinearId, size_t> joined_of, layer_of;  // keyed by the first product
  std::vector<bool> taken(linears_.size());
  const auto take = [&](LinearId id) {
    if (taken[id]) throw Error(ErrorCode::kModel, linears_[id].matrix.path + " stands side by side with others twice");
    taken[id] = true;
  };
  for (size_t i = 0; i < joined_.size(); ++i) {
    for (const LinearId id : joined_[i].linears) take(id);
    joined_of[joined_[i].linears.front()] = i;
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const AttentionDecl& d = layers[i].decl;
    for (const LinearId id : products_of(d)) take(id);
    layer_of[d.q] = i;
  }
  for (RowOps& r : ops_of_rows) {
    r.ops = resolve_chain({r.decl.path, r.decl.columns}, r.decl.ops, components_, vectors);
    static_cast<void>(columns_after(r.decl.path, r.ops, r.ops.size(), r.decl.columns));
  }
  site_of_linear_.resize(linears_.size());
  for (LinearId id = 0; id < linears_.size(); ++id) {
    if (const auto joined = joined_of.find(id); joined != joined_of.end()) {
      add_site(joined_[joined->second].linears, nullptr, joined_[joined->second].after);
    } else if (const auto layer = layer_of.find(id); layer != layer_of.end()) {
      AttentionLayer& l = layers[layer->second];
      l.qkv = add_site(products_of(l.decl), &l.decl, l.decl.heads);
    } else if (!taken[id]) {
      add_site({id}, nullptr, {});
    }
  }
}

void Declared::append_before_rope(AttentionLayer& layer) {
  Site& site = sites[layer.qkv];
  OpChain& after = site.after;
  const size_t n = after.size() - (site.has_sinks() ? 1 : 0), appends = layer.decl.cache_of ? 0 : 1;
  site.queries_turn_last = n > appends && after[n - 1 - appends].fop.id == TENON_F_ROPE;
  if (site.queries_turn_last && appends != 0) std::swap(after[n - 2], after[n - 1]);
}

void Declared::split(Site& site, const std::vector<const Scheme*>& schemes) {
  for (size_t m = 0; m < site.decl.mats.size(); ++m) {
    if (site.groups.empty() || site.groups.back().scheme != schemes[m]) {
      site.groups.emplace_back();
      site.groups.back().scheme = schemes[m];
    }
    site.groups.back().mats.push_back(m);
  }
  for (SiteGroup& group : site.groups) {
    if (!site.each.empty()) {
      std::vector<const OpChain*> chains;
      for (const size_t m : group.mats) chains.push_back(&site.each[m]);
      for (const OpChain* chain : chains) {
        for (const ChainOp& op : *chain) {
          if (op.in_place() && op.rows == std::array<bool, 4>{}) continue;
          throw Error(ErrorCode::kModel, site.decl.path + ": op." + op.name() +
                                             " cannot stand after one of several products side by side");
        }
      }
      const std::string path =
          group.mats.size() == site.decl.mats.size() ? site.decl.path : site.decl.mats[group.mats.front()].path;
      std::optional<OpChain> one = joined_chain(chains, [&](const std::vector<VectorId>& ids) {
        return side_by_side(path + '.' + last_name(vectors[ids.front()].path), ids);
      });
      group.apart = !one.has_value();
      if (one) group.after = std::move(*one);
    }
    // The pieces of a cut site see their own columns only, so nothing after the site can be theirs.
    group.offered = group.after;
    if (site.groups.size() == 1 && !group.apart) {
      group.offered.insert(group.offered.end(), site.after.begin(), site.after.end());
      group.offered.resize(group.offered.size() - site.for_attention());
    }
  }
}

void Declared::add_vectors() {
  std::vector<bool> needed(vectors.size());
  const auto need = [&](const OpChain& chain) {
    for (const ChainOp& op : chain) {
      for (const auto& v : op.vectors) {
        if (v) needed[*v] = true;
      }
    }
  };
  for (const RowOps& r : ops_of_rows) need(r.ops);
  for (const Site& site : sites) {
    need(site.before);
    need(site.looked_up);
    need(site.after);
    for (const SiteGroup& group : site.groups) {
      need(group.after);
      for (const size_t m : group.mats) {
        if (group.apart) need(site.each[m]);
      }
    }
  }
  for (VectorId id = 0; id < vectors.size(); ++id) {
    Vector& v = vectors[id];
    if (!needed[id]) continue;
    v.storage = storages_.add(v.path, v.fill ? MemoryKind::kTables : MemoryKind::kWeights,
                              static_cast<uint64_t>(v.rows * v.columns) * sizeof(float));
  }
}

}  // namespace tenon
