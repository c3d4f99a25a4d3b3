// What a model declared, as the pipeline keeps it: sites with their schemes, vectors, tables, attention layers.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "components.h"
#include "tenon/core/module.h"
#include "tenon/core/program.h"

namespace tenon {

// Matrices of a site that one scheme holds, and its handle for them.
struct SiteGroup {
  const Scheme* scheme = nullptr;
  std::vector<size_t> mats;  // of the declaration, consecutive
  void* handle = nullptr;    // from bind; the scheme's
  tenon_footprint footprint{};
  std::vector<uint32_t> stores;     // storages
  std::vector<tenon_claim> claims;  // by program shape
};

struct Site {
  LinearDecl decl;
  std::vector<SiteGroup> groups;
  std::vector<int64_t> rows;          // of each matrix
  std::vector<tenon_format> formats;  // of each matrix, in the file
  int64_t total_rows() const;
};

struct Vector {
  std::string path;
  std::vector<const WeightTensor*> parts;      // or
  std::function<void(std::span<float>)> fill;  // computed
  int64_t rows = 1, columns = 0;
  uint32_t storage = 0;
};

struct AttentionLayer {
  AttentionDecl decl;
  std::vector<tenon_claim> claims;  // by program shape
  bool dequant = false;             // reads a copy of the cache in its preferred format
};

// The page tables of layers that share theirs.
struct KvTable {
  uint32_t page_tokens = 0, columns = 0;
};

// The model's declarations, checked against the weights.
class Declared : public Declarations {
 public:
  Declared(const Weights& weights, StorageTable& storages, uint32_t capacity)
      : weights_(weights), storages_(storages), capacity_(capacity) {}

  SiteId linear(LinearDecl decl) override;
  VectorId vector(std::string path, std::vector<const WeightTensor*> parts) override;
  VectorId table(std::string path, int64_t rows, int64_t columns, std::function<void(std::span<float>)> fill) override;
  LayerId attention(AttentionDecl decl) override;
  uint32_t capacity() const override { return capacity_; }

  std::vector<Site> sites;
  std::vector<Vector> vectors;
  std::vector<AttentionLayer> layers;
  std::map<tenon_id, KvTable> kv_tables;  // by group; known once a program is recorded

 private:
  const Weights& weights_;
  StorageTable& storages_;
  uint32_t capacity_;
};

// The small ops of a site or layer before and behind its product, in order; tensors are 0 until they are recorded.
struct Chain {
  std::vector<tenon_fop> ops;
};
Chain prologue_of(const Site& site);
// For a qkv site: with the ops of the heads, up to the cache's append.
Chain epilogue_of(const Site& site, const AttentionDecl* attention);

// A chain as the boundary has it; valid as long as the ops.
class ChainView {
 public:
  ChainView(const tenon_fop* ops, size_t n);
  const tenon_chain* get() const { return &chain_; }

 private:
  std::vector<const tenon_fop*> pointers_;
  tenon_chain chain_;
};

const char* fop_name(tenon_id id);

}  // namespace tenon
