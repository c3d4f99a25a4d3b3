// This scheme claims activations other than f32, as schemes of a GPU do, and multiplies nothing: it is asked and bound,
// no more. x, y: beside f32 it takes these formats, of which one has codes and one, in bf16, is for a norm.
#include <memory>
#include <string>

#include "tenon/sdk/cpu/linear.h"
#include "tenon/sdk/linked_rows.h"
#include "tenon/sdk/quantization.h"

namespace acme {

namespace cpu = tenon::sdk::cpu;
namespace sdk = tenon::sdk;

struct Halves : sdk::Quantization<Halves> {
  static constexpr const char* kName = "acme.halves";
  static constexpr const char* kDoc = "Takes activations in halves.";
  static constexpr auto kParams = sdk::params(
      sdk::text(
          {.name = "x", .doc = "A format that x may have.", .value = "f32", .choices = "f32|bf16|f16|f8e4m3|normed"}),
      sdk::text(
          {.name = "y", .doc = "A format that y may have.", .value = "f32", .choices = "f32|bf16|f16|f8e4m3|normed"}));
  static constexpr uint32_t kRowInvariantMax = 0;
  using Site = cpu::LinearSite;

  Halves(const sdk::Params& params, const sdk::Env&) : x_(params.text("x")), y_(params.text("y")) {}

  tenon_claim claim(const tenon_linear& s, const tenon_bounds&) const {
    const auto takes = [](tenon_format format, const std::string& name) {
      if (sdk::is_normed(format)) return name == "normed" && sdk::element_of(format) == TENON_BF16;
      return format == TENON_F32 || tenon_format_name(format) == name;
    };
    if (!takes(s.x_format, x_) || !takes(s.y_format, y_)) throw sdk::Refused("other activations");
    tenon_linear plain = s;
    plain.x_format = plain.y_format = TENON_F32;
    return cpu::claim_linear(plain, &cpu::unpacked_source, true);
  }
  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const>) const {
    auto site = std::make_unique<Site>();
    site->k = static_cast<uint32_t>(s.in_dim);
    return site;
  }
  tenon_footprint footprint(Site&) const { return sdk::abi_struct<tenon_footprint>(); }
  void load(Site&, const tenon_rows&, void* const*, void*, void*) const { throw sdk::Failed("it holds nothing"); }
  void record(Site&, const tenon_linear_call&, sdk::Recorder&) const { throw sdk::Failed("it multiplies nothing"); }
  void record_rows(Site&, const tenon_tid*, tenon_tid, tenon_tid, sdk::Recorder&) const {
    throw sdk::Failed("it looks up nothing");
  }

 private:
  std::string x_, y_;
};

}  // namespace acme

TENON_PLUGIN(acme::Halves);
