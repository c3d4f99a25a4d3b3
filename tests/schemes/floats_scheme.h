// These schemes store every weight as it is, in f32, and want to be asked for factors in the columns of x.
#pragma once

#include "plain_scheme.h"

namespace tenon::test {

struct StateArgs {
  uint32_t bytes;
};

void mark(const StateArgs& a, const sdk::Part& part) {
  for (uint32_t i = part.begin(); i < part.end(); ++i) std::fill_n(part.ptr<uint8_t>(0), a.bytes, uint8_t{1});
}

// T has kName, kDoc, kParams, kDescription, which files say about themselves, and column_factors().
template <class T>
class FloatsScheme : public PlainScheme<T> {
 public:
  using Site = cpu::LinearSite;

  // Plain matrices are taken, and those that the scheme has written.
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
    w.description = T::kDescription;
    return w;
  }
  void encode(const tenon_linear& s, const tenon_encode& e) const {
    std::copy_n(e.data, e.rows * static_cast<size_t>(s.in_dim), static_cast<float*>(e.out[0]));
  }

  // It needs no more than to be asked, about every expert as well: the state says that rows came.
  uint64_t observed_bytes(const tenon_linear&) const { return sizeof(double); }
  void observe(const tenon_linear&, const tenon_observe_call& call, sdk::Recorder& r) const {
    const StateArgs args{static_cast<uint32_t>(r.describe(call.state).dim[0])};
    r.emit<mark>({.name = "mark", .operands = {{{call.state, TENON_WRITE}}}, .chunks = {1}}, args);
  }
};

}  // namespace tenon::test
