// quantization.folds: a scheme that stores every weight as it is and wants factors in the columns of x, whatever x is like: by
// that it can be seen whether the host's folding changes what a model computes.
#include <cmath>

#include "plain_scheme.h"

namespace {

class Folds : public tenon::test::PlainScheme<Folds> {
 public:
  static constexpr const char* kName = "folds";
  static constexpr const char* kDoc = "weights in f32, with factors in their columns";
  static constexpr auto kParams =
      sdk::params(sdk::real({.name = "spread",
                             .doc = "factors lie between 1 / spread and spread; 0: wrong ones",
                             .value = 8,
                             .min = 0,
                             .max = 64}));

  Folds(const sdk::Params& params, const sdk::Env&) : spread_(params.real("spread")) {}

  // Plain matrices, and those that the scheme has written.
  static tenon_format source(const tenon_linear& s, uint32_t mat) {
    if (sdk::find_tensor(s.matrix[mat], "floats") == nullptr) return cpu::unpacked_source(s, mat);
    const tenon_stored expected[] = {{"floats", TENON_F32, 2, {s.out_dim[mat], s.in_dim, 0, 0}}};
    sdk::need_tensors(s.matrix[mat], expected);
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
    w.description = R"({"quant_method":"folds"})";
    return w;
  }
  void encode(const tenon_linear& s, const tenon_encode& e) const {
    std::copy_n(e.data, e.rows * static_cast<size_t>(s.in_dim), static_cast<float*>(e.out[0]));
  }

  // It needs no more than to be asked.
  uint64_t observed_bytes(const tenon_linear&) const { return sizeof(double); }
  void observe(const tenon_linear&, const tenon_observe_call&, sdk::Recorder&) const {}
  void column_factors(const tenon_linear& s, const tenon_column_factors& c) const {
    for (int64_t i = 0; i < s.in_dim; ++i) {
      c.factor[i] = static_cast<float>(std::pow(spread_, std::sin(1.0 + c.tied[i])));
    }
  }

 private:
  double spread_;
};

}  // namespace

TENON_PLUGIN(Folds);
