// This computes what the shipped schemes hold of a matrix of floats: for each scheme its definition is written here
// once more, a row at a time and without any of the scheme's own code, so that the conformance tests compare a scheme
// with its definition and not with itself.
#include "quantization_schemes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "support/weight_rows.h"
#include "tenon/sdk/convert.h"

namespace tenon::test {
namespace {

// This is the definition of int4wo once more, a row at a time.
float as_bf16(float f) {
  return sdk::bf16_to_float(sdk::float_to_bf16(f));
}
std::vector<float> int4_row(const float* w, int64_t k, int64_t group) {
  std::vector<float> out;
  for (int64_t at = 0; at < k; at += group) {
    const int64_t end = std::min(k, at + group);
    const float low = *std::min_element(w + at, w + end), high = *std::max_element(w + at, w + end);
    const float step = std::max((high - low) / 15, 1e-6F);
    const float s = as_bf16(step), z = as_bf16(low + 8 * step);
    for (int64_t i = at; i < end; ++i) {
      out.push_back((std::clamp(std::rint((w[i] - (z - 8 * s)) / s), 0.0F, 15.0F) - 8) * s + z);
    }
  }
  return out;
}

std::vector<float> as_held(const Scheme& scheme, std::vector<float> file, int64_t k) {
  if (scheme.dtype == "stored" || scheme.dtype == "fp32") return file;
  if (scheme.name == "none") {
    for (float& w : file) {
      w = scheme.dtype == "fp16" ? sdk::half_to_float(sdk::float_to_half(w)) : as_bf16(w);
    }
    return file;
  }
  if (scheme.name != "int8wo" && scheme.group == 0 && !scheme.coded) return file;
  for (size_t at = 0; at < file.size(); at += static_cast<size_t>(k)) {
    if (scheme.coded) {
      hold_coded(*scheme.coded, &file[at], static_cast<size_t>(k));
      continue;
    }
    if (scheme.name == "int8wo") {
      hold_as_int8(&file[at], static_cast<size_t>(k));
      continue;
    }
    const std::vector<float> row = int4_row(&file[at], k, scheme.group);
    std::copy(row.begin(), row.end(), file.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return file;
}

}  // namespace

std::unique_ptr<conformance::Component> Scheme::open() const {
  const auto with = [&](const std::vector<Setting>& given) -> std::unique_ptr<conformance::Component> {
    if (device == "cpu") return std::make_unique<Component>("quantization", name, given, isa);
    return std::make_unique<conformance::Component>(plugins().load("quantization", name, device), *test::device(device),
                                                    given);
  };
  if (coded) return with(settings);
  if (!dtype.empty()) return with({{"dtype", dtype}});
  if (group != 0) return with({{"group_size", group}});
  if (name == "gguf") return with({{"activations", std::string(int8 ? "int8" : "f32")}});
  return with({});
}

std::vector<Scheme> coded_schemes() {
  std::vector<Scheme> all;
  const auto add = [&](const std::string& name, const std::string& label, CodedForm form,
                       std::vector<Setting> settings) {
    Scheme s;
    s.name = name;
    s.label = label;
    s.coded = std::move(form);
    s.settings = std::move(settings);
    all.push_back(std::move(s));
  };
  for (const char* name : {"nf4", "fp4"}) {
    for (const bool two : {false, true}) {
      add(name, std::string(name) + (two ? "_double" : ""), coded_form(name, two ? 1 : 0),
          {{"double_quantization", two}});
    }
  }
  add("fp8", "fp8", coded_form("fp8"), {});
  const auto add_integers = [&](int64_t bits, int64_t group) {
    add("uintx", "uintx_" + std::to_string(bits) + "_" + std::to_string(group), coded_form("uintx", bits, group),
        {{"bits", bits}, {"group_size", group}});
  };
  for (int64_t bits = 1; bits <= 8; ++bits) add_integers(bits, int64_t{32} << bits % 4);
  for (const auto& [bits, group] : {std::pair{2, 8}, {4, 16}, {5, 24}, {3, 96}, {8, 1000}}) add_integers(bits, group);
  for (const std::string format : {"e3m2", "e2m3", "e2m2", "e3m1"}) {
    add("fp6", "fp6_" + format, coded_form("fp6", 0, 0, format), {{"format", format}});
  }
  return all;
}

void PrintTo(const Scheme& s, std::ostream* out) {
  *out << s.label;
}

QuantizedSite::QuantizedSite(const Scheme& scheme, const SiteCase& site, uint32_t rows_a_load, const StepCase& around)
    : conformance::QuantizedSite(
          scheme.open(), site, rows_a_load,
          [&](std::vector<float> file, int64_t k) { return as_held(scheme, std::move(file), k); }, around) {}

}  // namespace tenon::test
