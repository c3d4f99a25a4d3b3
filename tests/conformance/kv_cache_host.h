// A cache of a few odd layers in a watched host, with a naive model of it beside.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "support/component.h"
#include "support/op_runner.h"
#include "tenon/abi/kv_cache.h"
#include "tenon/sdk/error.h"

namespace tenon::test {

// What a plain codec makes of a value: rounded to nearest even, computed without any code of the cache.
float rounded(tenon_format codec, float value);

class KvCacheHost {
 public:
  struct Shape {
    uint32_t rows = 12, seqs = 4, slots = 5, capacity = 37;
  };
  struct Append {
    uint32_t slot, rows;
  };

  KvCacheHost(const Component& cache, const Shape& shape);

  const tenon_kv_cache& table() const { return cache_.table<tenon_kv_cache>(); }
  void* self() const { return cache_.self(); }
  const Shape& shape() const { return shape_; }
  const tenon_footprint& footprint() const { return footprint_; }
  uint32_t length(uint32_t slot) const;

  // One step that appends random tokens, with rows of padding; "" or what went wrong. Then the cache, read through its
  // view and through its copies, is the model, token by token.
  std::string step(const std::vector<Append>& appends, std::mt19937_64& random);
  // The same to cache and model. Returns the cache's status.
  tenon_status fork(uint32_t from, uint32_t to, uint32_t kv_len);
  tenon_status truncate(uint32_t slot, uint32_t kv_len);
  std::vector<std::byte> export_sequence(uint32_t slot) const;
  tenon_status import_sequence(uint32_t slot, uint32_t kv_len, const std::vector<std::byte>& bytes,
                               const KvCacheHost& from, uint32_t from_slot);
  std::string last_reason() const { return text_; }

 private:
  struct Token {
    std::vector<float> k, v;  // (heads, dim) as stored
  };
  struct Layer {
    uint32_t heads, k_dim, v_dim;
    tenon_tid k = 0, v = 0;   // inputs of the append
    tenon_kv_view view = {};  // and, behind it, copies in plain formats
    std::vector<tenon_kv_view> copies = {};
    std::vector<std::vector<Token>> by_slot = {};  // the model
  };

  void record();
  std::string compare_view(const Layer& layer, const tenon_kv_view& view, uint32_t slot) const;

  const Component& cache_;
  Shape shape_;
  tenon_footprint footprint_{};
  OpRunner host_;
  std::vector<Layer> layers_;
  tenon_format codec_;
  char text_[256] = "";
  tenon_reason why_{text_, sizeof(text_)};
};

}  // namespace tenon::test
