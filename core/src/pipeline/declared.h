// The pipeline keeps what a model declared: sites with their schemes, vectors, tables, attention layers.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "../../model/weights/layout.h"
#include "chains.h"
#include "components.h"
#include "tenon/abi/attention.h"
#include "tenon/core/error.h"
#include "tenon/core/module.h"
#include "tenon/core/program.h"

namespace tenon {

// Programs of this shape are recorded. For picks_early see StepBuilder.
struct ProgramShape {
  tenon_bounds bounds;
  bool picks_early = false;
};

using SiteId = uint32_t;  // products of one x whose columns lie side by side

// Returns the tensor of a plain matrix (tenon/abi/quantization.h); nullptr for one that is stored in another way.
const WeightTensor* plain_tensor(const Matrix& matrix);

struct SiteMatrix {
  std::string path;  // "layers.3.attention.q"
  int64_t rows = 0;
  std::vector<Matrix> sets;  // the file has one, or one for each expert of a routed site
};

// These products were declared apart and are joined: "layers.3.attention.qkv" of q, k and v.
struct SiteDecl {
  std::string path;
  int32_t layer = -1;
  int64_t columns = 0;  // every matrix has so many
  std::vector<SiteMatrix> mats;
  uint32_t experts = 0;                 // 0: not routed
  bool product = true, lookup = false;  // see LinearDecl
  uint32_t chosen = 1;                  // see LinearDecl
  size_t sets() const { return experts == 0 ? 1 : experts; }
};

// These are the matrices of a site that one scheme holds, and its handle for them.
struct SiteGroup {
  const Scheme* scheme = nullptr;
  std::vector<size_t> mats;  // indices of the declaration's matrices, consecutive
  OpChain after;             // the ops after each matrix as one chain, over the columns of all of them
  bool apart = false;        // the ops after each matrix cannot be one chain: `after` is empty, and each has its own
  OpChain offered;           // `after`, and the ops after the site if the site is whole: the scheme may claim of this
  void* handle = nullptr;    // bind gave it; the scheme owns what it stands for
  tenon_footprint footprint{};
  std::vector<uint32_t> stores;     // storages
  std::vector<tenon_claim> claims;  // one for each program shape
  int64_t rows(const struct Site& site) const;
};

struct Site {
  SiteDecl decl;
  OpChain before;             // these stand before all matrices
  std::vector<OpChain> each;  // these stand after each matrix, over its columns, if the site has several
  OpChain after;              // the ops after the site, over all columns
  OpChain looked_up;          // the ops after rows that are looked up
  std::vector<SiteGroup> groups;
  std::vector<tenon_format> y_formats;  // see format_of()
  // Beside y the product leaves rows for the norm before that site, if the shape's format is not f32.
  SiteId normed_for = 0;
  std::vector<tenon_format> normed_formats;
  bool queries_turn_last = false;  // see append_before_rope()
  int64_t total_rows() const;
  // Returns how many ops after the site the claim of its first group does; 0 if the site is cut.
  size_t done_after(const tenon_claim& claim) const;
  bool has_sinks() const;  // learned sinks end the chain
  // Returns the ROPE that is for queries alone, since the cache keeps keys before it; nullptr if there is none.
  const ChainOp* rope_of_queries() const;
  // Returns how many ops at the end of `after` the attention alone can do.
  size_t for_attention() const { return (queries_turn_last ? 1 : 0) + (has_sinks() ? 1 : 0); }
};

// Returns the format (tenon/sdk/linked_rows.h) of a program shape. There is one for each shape; if there is none, it is f32.
tenon_format format_of(const std::vector<tenon_format>& formats, size_t shape);

struct AttentionLayer {
  AttentionDecl decl;
  // Its y is Q, K, V heads in order; then come `heads`, then the cache's append. See AttentionDecl::cache_of.
  SiteId qkv = 0;
  tenon_kv_view cache{};                  // the prototype that the cache gave for the layer, or for the one it reads
  std::vector<tenon_claim> claims;        // one for each program shape
  bool dequant = false;                   // reads a copy of the cache in its preferred format
  std::vector<tenon_format> out_formats;  // see format_of()

  // The cache chooses for each row of a step what it sees.
  bool chooses() const { return cache.most_spans != 0; }
};

// These ops stand beside no product.
struct RowOps {
  RowOpsDecl decl;
  OpChain ops = {};
};

tenon_kv_geometry kv_geometry_of(const AttentionDecl& d);
// Returns the view of a cache as that layer reads it: softmax weights are those of the layer whose cache it is.
tenon_kv_view as_read_by(const AttentionDecl& d, tenon_kv_view view);
// `pro` has the ops that are left for the attention; it outlives the result.
tenon_attn attention_of(const AttentionDecl& d, const ChainView& pro, tenon_format out_format = TENON_F32);

// These are the page tables of layers that share theirs.
struct KvTable {
  uint32_t page_cells = 0, columns = 0;
};

// This has the model's declarations, checked against the weights.
class Declared : public Declarations {
 public:
  // This much of the model is wanted: a range, or else so many layers from the first on; 0 = all.
  struct Wanted {
    uint32_t layers = 0;
    std::optional<LayerRange> range = {};
  };
  Declared(const Weights& weights, Components& components, StorageTable& storages, uint32_t capacity,
           const Wanted& wanted)
      : weights_(weights),
        components_(components),
        storages_(storages),
        capacity_(capacity),
        wanted_(wanted),
        description_(metadata_text(weights, "quantization_config").value_or("")) {}

  LinearId linear(LinearDecl decl) override;
  JoinedId joined(JoinedDecl decl) override;
  VectorId vector(std::string path, std::vector<const WeightTensor*> tensors, int64_t length) override;
  void add_to(VectorId vector, float number) override { vectors[vector].plus += number; }
  VectorId table(std::string path, int64_t rows, int64_t columns, std::function<void(std::span<float>)> fill) override;
  LayerId attention(AttentionDecl decl) override;
  RowOpsId row_ops(RowOpsDecl decl) override;
  uint32_t capacity() const override { return capacity_; }
  LayerRange layer_range(uint32_t all) const override;
  void uses(const WeightTensor& tensor) override { used_.insert(tensor.name); }
  void note(std::string about, std::string decision) override {
    notes_.emplace_back(std::move(about), std::move(decision));
  }
  void refuse(std::string what) override { refuse_in(0, std::move(what)); }
  const std::vector<std::pair<std::string, std::string>>& notes() const { return notes_; }
  void refuse(Diagnostic what) { findings_.add(std::move(what)); }

  // Throws Error(kModel) with all that was found wrong with the weights. It is called once the model is made.
  // `harmless` has patterns of the tensors that may be there without being declared.
  void check(std::span<const std::string> harmless);
  // Makes sites of products that stand side by side, after the model is built. Throws Error: kModel, kPlugin.
  void make_sites();
  // If a cache keeps keys before rope, the append stands before the ROPE that ended the chain. That ROPE is then for
  // queries alone, and no scheme is offered it. So is that of a layer that appends nothing.
  void append_before_rope(AttentionLayer& layer);
  // Cuts a site where the scheme changes; which ops each group's scheme may claim. `schemes` has one for each matrix.
  void split(Site& site, const std::vector<const Scheme*>& schemes);
  // Adds storages for the vectors that are needed, once all sites are split.
  void add_vectors();

  // Returns what the file says about how matrices are stored; see tenon_linear.
  const std::string& description() const { return description_; }

  SiteId site_of(LinearId linear) const { return site_of_linear_[linear]; }
  SiteId site_of_joined(JoinedId joined) const { return site_of_linear_[joined_[joined].linears.front()]; }

  std::vector<Site> sites;
  std::vector<Vector> vectors;
  std::vector<AttentionLayer> layers;
  std::vector<RowOps> ops_of_rows;
  std::map<tenon_id, KvTable> kv_tables;  // they go by the view's group, and are known once a program is recorded

 private:
  void check_matrix(const Matrix& matrix, const LinearDecl& decl);
  // Says in which tensor two matrices are stored differently, and how; "" if they are alike.
  static std::string difference_of(const Matrix& a, const Matrix& b);
  // Says why the layer cannot read the cache that it is to read; "" if it can, or has its own.
  std::string why_unshared(const AttentionDecl& decl) const;
  // The message has the tensor's name, format and shape, and what would be right.
  void wrong_tensor(const WeightTensor& tensor, const std::string& expected);
  void refuse_in(uint32_t file, std::string what);
  void refuse_tensor(const WeightTensor& tensor, const std::string& what);
  SiteId add_site(const std::vector<LinearId>& linears, const AttentionDecl* attention, const Chain& after);
  VectorId side_by_side(const std::string& path, const std::vector<VectorId>& ids);

  const Weights& weights_;
  Components& components_;
  StorageTable& storages_;
  uint32_t capacity_;
  Wanted wanted_;
  std::string description_;
  uint32_t cache_layers_ = 0;  // so many layers have a cache of their own
  std::vector<LinearDecl> linears_;
  std::vector<JoinedDecl> joined_;
  std::vector<SiteId> site_of_linear_;
  std::vector<std::pair<std::string, std::string>> notes_;
  std::set<std::string, std::less<>> used_;  // these tensors of the file are used, by name
  weights::Findings findings_{""};
};

}  // namespace tenon
