// This drives a cache of a few odd layers in a watched host, with a naive model of it beside.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "conformance/device.h"
#include "conformance/op_runner.h"
#include "tenon/abi/kv_cache.h"
#include "tenon/sdk/error.h"

namespace tenon::conformance {

// Returns what a plain codec makes of a value: rounded to nearest even, computed without any code of the cache.
float rounded(tenon_format codec, float value);

class KvCacheHost {
 public:
  struct Shape {
    uint32_t rows = 12, seqs = 4, slots = 5, capacity = 37;
    uint32_t window = 0;  // it is the second layer's; the third has a longer one; 0: every layer sees everything
    uint32_t layers = 3;  // it has so many of the host's three, from the first on
    bool tame = false;    // keys, values and queries are numbers between -3 and 3
  };
  // `text` has the slot's tokens from the first on, which then say what each row holds; without it the rows are random.
  struct Append {
    uint32_t slot, rows;
    std::span<const int32_t> text = {};
  };

  // `every_token` says that the cache keeps all of them; else it is held to those that its view says are in use.
  KvCacheHost(const Component& cache, const Shape& shape, bool every_token = true);

  const tenon_kv_cache& table() const { return cache_.table<tenon_kv_cache>(); }
  void* self() const { return cache_.self(); }
  const Device& device() const { return cache_.device(); }
  const Shape& shape() const { return shape_; }
  bool keeps_every_token() const { return every_token_; }
  const tenon_footprint& footprint() const { return footprint_; }
  uint32_t length(uint32_t slot) const;

  // Runs a step that appends random tokens, with rows of padding; returns "" or what went wrong.
  std::string run_step(const std::vector<Append>& appends, std::mt19937_64& random);
  // Does the same; then the cache, read through its view and through its copies,
  // holds what the model holds, cell by cell.
  std::string step(const std::vector<Append>& appends, std::mt19937_64& random);
  // These do the same to cache and model, and return the cache's status.
  tenon_status fork(uint32_t from, uint32_t to, uint32_t kv_len);
  tenon_status truncate(uint32_t slot, uint32_t kv_len);
  std::vector<std::byte> export_sequence(uint32_t slot) const;
  tenon_status import_sequence(uint32_t slot, uint32_t kv_len, const std::vector<std::byte>& bytes,
                               const KvCacheHost& from, uint32_t from_slot);
  // The slot takes the first tokens of a text that the cache has, and the model takes what the text says.
  tenon_status adopt(uint32_t slot, std::span<const int32_t> text, uint32_t& kv_len);
  std::string last_reason() const { return text_; }

  // Where a policy wants softmax weights, this gives every cell in use of a sequence of the last step the weight
  // f(layer, slot, head, position), as attention would leave it.
  using Weight = std::function<float(uint32_t, uint32_t, uint32_t, uint32_t)>;
  void weigh(const Weight& f);
  uint32_t layers() const { return static_cast<uint32_t>(layers_.size()); }
  uint32_t heads(uint32_t layer) const { return layers_[layer].heads; }
  // Returns the positions that a head of a sequence holds after the last step, ascending.
  std::vector<uint32_t> positions(uint32_t layer, uint32_t slot, uint32_t head) const;

  // These are for a cache that chooses spans: view() returns that of a layer, and chosen() returns the spans, or -1,
  // that the last layer chose for a row of the last step. It chose them by queries(), (kGroup, k_dim) of a KV head,
  // and by key(), a token's as it is stored.
  static constexpr uint32_t kGroup = 2;
  const tenon_kv_view& view(uint32_t layer) const { return layers_[layer].view; }
  std::vector<int32_t> chosen(uint32_t row, uint32_t head) const;
  std::vector<float> queries(uint32_t row, uint32_t head) const;
  std::span<const float> key(uint32_t slot, uint32_t position, uint32_t head) const;

 private:
  struct Token {
    std::vector<float> k, v;            // (heads, dim) as stored
    std::vector<float> tail_k, tail_v;  // a tail has these
  };
  struct Layer {
    uint32_t heads, k_dim, v_dim, window = 0;
    tenon_tid k = 0, v = 0;   // these are inputs of the append
    tenon_tid q = 0;          // the cache chooses by it; 0: it does not
    tenon_kv_view view = {};  // after it come copies in plain formats
    std::vector<tenon_kv_view> copies = {};
    std::vector<std::vector<Token>> by_slot = {};  // this is the model
  };

  void record();
  // The last token of a text gives a layer these numbers: the heads' rows one after another, before they are stored.
  static std::vector<float> said_by(std::span<const int32_t> text, uint32_t layer, bool value, size_t columns);
  void stored(float* row, uint32_t n) const;
  // A token of a layer gets its keys, or values, as the cache stores them: from (heads, dim).
  void keep(const Layer& layer, Token& token, bool value, const std::vector<float>& row) const;
  // Returns the first position that a window leaves to the first row of the step.
  uint32_t first_seen(uint32_t window, uint32_t slot) const;
  // Returns which position each cell of a sequence holds, as the view says after a step: old cells as far as the
  // windows of view and layer leave them to a row of the step, and those of its rows.
  std::map<uint32_t, uint32_t> cells_of(uint32_t window, const tenon_kv_view& view, uint32_t slot, uint32_t head) const;
  // Says what a view of a layer holds that is wrong; or, of a view with a tail, what that holds.
  std::string compare_view(const Layer& layer, const tenon_kv_view& view, uint32_t slot) const;
  // Returns what a cache makes of a key whose group shares zeros and steps.
  float key_of_group(const Layer& layer, uint32_t slot, uint32_t position, uint32_t head_and_dim) const;
  std::string compare_cells(const Layer& layer, const tenon_kv_view& view, uint32_t slot, bool tail) const;
  float next_value(std::mt19937_64& random) const;
  // Says what is wrong if the last layer chooses for a row anything but spans that there are,
  // or everything in a sequence of many rows.
  std::string check_choice(const std::vector<Append>& appends) const;

  const Component& cache_;
  Shape shape_;
  bool every_token_;
  tenon_footprint footprint_{};
  OpRunner host_;
  std::vector<Layer> layers_;
  tenon_format codec_, scale_ = TENON_FORMAT_NONE;
  bool hadamard_ = false;
  char text_[256] = "";
  tenon_reason why_{text_, sizeof(text_)};
};

}  // namespace tenon::conformance
