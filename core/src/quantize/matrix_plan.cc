// Before anything is written it is decided what each tensor becomes: a matrix goes to the target that the last override
// names, or is stored as F16 if the target refuses it, or if it is a router and no override names it; a tensor that is
// no matrix is kept.
#include "matrix_plan.h"

#include <fnmatch.h>

#include <algorithm>

#include "../../model/weights/folder_texts.h"
#include "../../model/weights/layout.h"
#include "../../model/weights/tensor_converter.h"
#include "foldings.h"
#include "model_listing.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

using weights::element_count;
using weights::in_quotes;
using weights::is_blocks;
using weights::is_matrix;

bool matches(const QuantizeOverride& override, const std::string& name) {
  return fnmatch(override.match.c_str(), name.c_str(), 0) == 0;
}

void check_kind(const QuantizeOverride& override, bool folder) {
  const auto refuse = [&](const char* why) {
    throw Error(ErrorCode::kUsage, "override " + in_quotes(override.match) + ": " + override.target.name() + why);
  };
  if (!folder && override.target.scheme) {
    refuse(" is no format of GGUF; give it as the scheme of the whole model, then OUT is a folder");
  }
  if (!folder || override.target.scheme) return;
  const auto formats = quantize_formats();
  const auto is = [&](const QuantizeFormat& f) { return f.format == override.target.format; };
  if (std::find_if(formats.begin(), formats.end(), is)->safetensors) return;
  refuse(" is a format of GGUF; in safetensors matrices can be F32, F16 or BF16, or what a component stores");
}

const QuantizeTarget& wanted_target(const WeightTensor& t, const QuantizeOptions& options) {
  const QuantizeTarget* target = &options.target;
  for (const QuantizeOverride& override : options.overrides) {
    if (matches(override, t.name)) target = &override.target;
  }
  return *target;
}

std::string without_weight(const std::string& name) {
  constexpr std::string_view kSuffix = ".weight";
  return name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : name;
}

class Planner {
 public:
  Planner(const Weights& model, const QuantizeOptions& options, QuantizeReport& report)
      : options_(options), report_(report) {
    const ModelListing listing(model, options.model_dirs);
    matrices_ = matrices_of(listing);
    if (options.calibration && options.target.scheme && options.target.scheme->scales_columns()) {
      foldings_ = foldings_of(listing);
    }
  }

  // Keeps the foldings whose matrices are all written by the whole model's scheme, and whose router no override names;
  // marks what is written with factors in it.
  void fold(QuantizePlan& plan) const {
    std::map<std::string, PlannedTensor*> by_name;
    for (PlannedTensor& p : plan.tensors) by_name[p.source->name] = &p;
    const auto matrix_of = [&](const std::string& name, const SchemeEncoder* scheme) -> PlannedTensor* {
      const auto found = by_name.find(name + ".weight");
      return found != by_name.end() && found->second->scheme == scheme ? found->second : nullptr;
    };
    const SchemeEncoder* const scheme = options_.target.scheme.get();
    for (const Folding& f : foldings_) {
      PlannedFolding folding{.layer = f.layer,
                             .consumers = {},
                             .experts = f.experts,
                             .source = f.source,
                             .sources = f.sources,
                             .vectors = {},
                             .producer = matrix_of(f.producer, scheme),
                             .first_row = f.first_row};
      for (const std::string& name : f.consumers) folding.consumers.push_back(matrix_of(name, scheme));
      PlannedTensor* router = matrix_of(f.router, nullptr);
      if (router != nullptr && is_named(*router->source)) router = nullptr;
      const bool all = std::ranges::find(folding.consumers, nullptr) == folding.consumers.end() &&
                       f.producer.empty() == (folding.producer == nullptr) && f.router.empty() == (router == nullptr);
      if (!all || folding.consumers.size() / std::max(f.experts, 1U) > TENON_MAX_STORES) continue;
      const ModelMatrix& consumer = folding.consumers.front()->matrix;
      for (const Folding::Elements& e : f.vectors) {
        PlannedTensor* vector = by_name.at(e.tensor);
        mark_folded(*vector, consumer);
        folding.vectors.push_back({vector, e.first, e.added});
      }
      if (router != nullptr) mark_folded(*router, consumer);
      folding.router = router;
      plan.foldings.push_back(std::move(folding));
    }
  }

  // Names the matrices that no scheme writes, but for embeddings.
  std::vector<std::string> plain_matrices(const QuantizePlan& plan) const {
    std::vector<std::string> names;
    for (const PlannedTensor& p : plan.tensors) {
      if (p.scheme != nullptr || !is_matrix(*p.source)) continue;
      const ModelMatrix* declared = known(*p.source);
      if (declared == nullptr || !declared->lookup) names.push_back(without_weight(p.source->name));
    }
    return names;
  }

  PlannedTensor plan(const WeightTensor& t) {
    PlannedTensor p{.source = &t, .format = t.format, .matrix = {}, .described = {}};
    if (!is_matrix(t)) {
      if (!options_.target.makes_folder() && (t.format == TENON_F16 || t.format == TENON_BF16)) p.format = TENON_F32;
      return p;
    }
    const QuantizeTarget& wanted = wanted_target(t, options_);
    std::string refusal = wanted.scheme ? ask(*wanted.scheme, p) : fit(wanted.format, p);
    if (refusal.empty() && !is_named(t) && is_router_of_model(t) && would_lose(p)) {
      refusal = "near ties of a router's scores choose other experts; --override stores it otherwise";
      p.scheme = nullptr;
      p.described = {};
    }
    if (!refusal.empty()) {
      p.format = TENON_F16;
      report_.exceptions.push_back({t.name, wanted.name(), refusal});
    }
    if (is_blocks(t.format) && (p.scheme != nullptr || t.format != p.format)) ++report_.requantized;
    return p;
  }

 private:
  // Both return "" or why the tensor cannot be stored so.
  std::string fit(tenon_format format, PlannedTensor& p) const {
    const int64_t width = p.source->shape.back();
    const tenon_block block = tenon_format_block(format);
    p.format = format;
    if (width % block.elements == 0) return "";
    return "rows of " + std::to_string(width) + " weights are no whole number of blocks of " +
           std::to_string(block.elements);
  }
  std::string ask(const SchemeEncoder& scheme, PlannedTensor& p) const {
    const WeightTensor& t = *p.source;
    if (t.shape.size() != 2) return "it has " + std::to_string(t.shape.size()) + " dimensions";
    const std::string name = without_weight(t.name);
    const ModelMatrix* declared = known(t);
    p.matrix = declared != nullptr ? *declared
                                   : ModelMatrix{.path = name, .name = name, .rows = t.shape[0], .columns = t.shape[1]};
    auto answer = scheme.describe(p.matrix);
    if (const auto* refusal = std::get_if<std::string>(&answer)) return refusal->empty() ? "no reason given" : *refusal;
    p.described = std::get<MatrixDescription>(std::move(answer));
    p.scheme = &scheme;
    return "";
  }

  // Returns nullptr for a matrix that no model declares.
  const ModelMatrix* known(const WeightTensor& t) const {
    const auto found = matrices_.find(without_weight(t.name));
    return found == matrices_.end() ? nullptr : &found->second;
  }
  bool is_named(const WeightTensor& t) const { return &wanted_target(t, options_) != &options_.target; }
  bool is_router_of_model(const WeightTensor& t) const {
    const ModelMatrix* declared = known(t);
    return declared != nullptr && is_router(declared->path);
  }
  static bool would_lose(const PlannedTensor& p) { return p.scheme != nullptr || is_blocks(p.format); }

  // `consumer` is a matrix of the layer.
  static void mark_folded(PlannedTensor& p, const ModelMatrix& consumer) {
    p.folded = true;
    p.format = TENON_F32;
    p.matrix = {.path = consumer.path, .name = p.source->name, .layer = consumer.layer};
    p.described.tensors = {{"", TENON_F32, p.source->shape, false}};
  }

  const QuantizeOptions& options_;
  QuantizeReport& report_;
  std::map<std::string, ModelMatrix> matrices_;  // keyed by the matrices' names
  std::vector<Folding> foldings_;
};

void add_written(const PlannedTensor& p, std::vector<WeightTensor>& written) {
  if (p.scheme == nullptr) {
    WeightTensor& t = written.emplace_back(*p.source);
    t.format = p.format;
    t.bytes = weights::stored_bytes(t.format, t.shape).value();
    return;
  }
  for (const MatrixDescription::Tensor& stored : p.described.tensors) {
    WeightTensor& t = written.emplace_back();
    t.name = p.matrix.name + "." + stored.name;
    t.format = stored.format;
    t.shape = stored.shape;
    t.bytes = stored.bytes();
  }
}

}  // namespace

void check_overrides(const Weights& model, const QuantizeOptions& options) {
  for (const QuantizeOverride& override : options.overrides) {
    check_kind(override, options.target.makes_folder());
    std::vector<std::string> names;
    for (const WeightTensor& t : model.tensors()) {
      if (is_matrix(t)) names.push_back(t.name);
    }
    if (std::any_of(names.begin(), names.end(), [&](const auto& name) { return matches(override, name); })) continue;
    const std::string nearest = nearest_name(override.match, names);
    throw Error(ErrorCode::kUsage, "override " + in_quotes(override.match) + " matches no matrix of the model" +
                                       (nearest.empty() ? "; names are those of " + std::string(model.convention()) +
                                                              ", such as " + in_quotes(names.empty() ? "" : names[0])
                                                        : "; did you mean " + in_quotes(nearest) + "?"));
  }
}

QuantizePlan plan_tensors(const Weights& model, const QuantizeOptions& options, QuantizeReport& report) {
  QuantizePlan plan;
  Planner planner(model, options, report);
  std::string plain_names;
  for (const WeightTensor& t : model.tensors()) plan.tensors.push_back(planner.plan(t));
  planner.fold(plan);
  for (PlannedTensor& p : plan.tensors) {
    p.first = plan.written.size();
    add_written(p, plan.written);
    report.weights += element_count(*p.source);
    ++report.tensors[p.scheme != nullptr ? p.scheme->name() : std::string(tenon_format_name(p.format))];
    const bool of_whole = p.scheme == options.target.scheme.get();
    if (p.scheme != nullptr && (of_whole || plan.description.empty())) {
      plan.description = p.described.description;
      plain_names = p.described.plain_names;
    }
  }
  if (!plain_names.empty()) {
    plan.description = weights::with_names(plan.description, plain_names, planner.plain_matrices(plan));
  }
  for (const WeightTensor& t : plan.written) report.bytes_written += t.bytes;
  return plan;
}

}  // namespace tenon
