// Schemes that ask for factors in the columns of x and store every weight as it is given, but for one mistake.
#pragma once

#include "../schemes/plain_scheme.h"

namespace tenon::bad {

enum class Mistake { kUndoes, kZero };

// kName and kDoc are the derived scheme's.
template <class T, Mistake kMistake>
class AsksFactors : public test::PlainScheme<T> {
 public:
  static constexpr auto kParams = sdk::params();
  using Site = cpu::LinearSite;

  AsksFactors(const sdk::Params&, const sdk::Env&) {}

  static tenon_format source(const tenon_linear& s, uint32_t mat) {
    if (sdk::find_tensor(s.matrix[mat], "floats") == nullptr) return cpu::unpacked_source(s, mat);
    return TENON_F32;
  }
  void load(Site& site, const tenon_rows& src, void* const* store, void*, void*) const {
    cpu::each_loaded_row(site, src, store, [&](uint8_t* to, const cpu::FileRow& from) {
      sdk::unpack_row(site.mat(src).source, from[0], site.k, reinterpret_cast<float*>(to));
    });
  }
  tenon_written describe(const tenon_linear& s) const {
    auto w = sdk::abi_struct<tenon_written>();
    w.tensor[w.n_tensors++] = {"floats", TENON_F32, 2, {s.out_dim[0], s.in_dim}};
    w.description = R"({"quant_method":"floats"})";
    return w;
  }
  void encode(const tenon_linear& s, const tenon_encode& e) const {
    auto* to = static_cast<float*>(e.out[0]);
    for (size_t i = 0; i < e.rows * static_cast<size_t>(s.in_dim); ++i) {
      const bool undo = kMistake == Mistake::kUndoes && e.factor != nullptr;
      to[i] = e.data[i] / (undo ? e.factor[i % static_cast<size_t>(s.in_dim)] : 1);
    }
  }
  uint64_t observed_bytes(const tenon_linear&) const { return sizeof(double); }
  void observe(const tenon_linear&, const tenon_observe_call&, sdk::Recorder&) const {}
  void column_factors(const tenon_linear&, const tenon_column_factors& c) const {
    if (kMistake == Mistake::kZero) c.factor[7] = 0;
  }
};

}  // namespace tenon::bad
