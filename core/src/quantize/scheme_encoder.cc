// This makes C++ of a component's table: structs are filled in, statuses become errors, and answers are checked before
// anything of them reaches a file. Invariants: a description has tensors with names of their own, in types that
// safetensors have, and of a known size; factors are finite numbers above 0, the same for tied columns. TENON_REFUSED
// is an answer of describe() (another target may take the matrix), and an error of the model in encode().
#include "scheme_encoder.h"

#include <array>
#include <boost/json/parse.hpp>
#include <cmath>
#include <map>
#include <set>

#include "../../model/weights/layout.h"
#include "../../model/weights/safetensors_parser.h"
#include "tenon/core/error.h"
#include "tenon/sdk/error.h"

namespace tenon {
namespace {

std::unique_ptr<Context> host_context(Registry& registry) {
  PipelineConfig config;
  RegistrySchemas schemas(registry);
  config.device.kind = "device";
  config.device.name = "cpu";
  config.device.params = ParamValues(schemas.schema("device", "cpu", ""));
  return std::make_unique<Context>(config, registry, PipelineOptions{});
}

// This has matrices that share x as the boundary has them, with the path and the uses of the first: one after the other
// those of `experts`, unless that is 0. It borrows from them.
struct LinearOfMatrices {
  LinearOfMatrices(std::span<const ModelMatrix* const> all, uint32_t experts)
      : linear(sdk::abi_struct<tenon_linear>()) {
    const ModelMatrix& first = *all.front();
    tensors.reserve(all.size());
    for (const ModelMatrix* m : all) {
      rows.push_back(m->rows);
      tensors.push_back({"weight", TENON_F32, 2, {m->rows, m->columns, 0, 0}});
      matrices.push_back({m->name.c_str(), 1, 0, &tensors.back()});
    }
    linear.path = first.path.c_str();
    linear.n_mats = static_cast<uint32_t>(all.size()) / std::max(experts, 1U);
    linear.experts = experts;
    linear.x_format = linear.y_format = TENON_F32;
    linear.out_dim = rows.data();
    linear.in_dim = first.columns;
    linear.matrix = matrices.data();
    linear.description = "";
    linear.rows_wanted = first.lookup ? 1 : 0;
    linear.product_wanted = first.product ? 1 : 0;
    linear.pro = linear.epi = &none;
  }
  explicit LinearOfMatrices(const ModelMatrix& m) : LinearOfMatrices(std::array{&m}, 0) {}
  LinearOfMatrices(const LinearOfMatrices&) = delete;
  LinearOfMatrices& operator=(const LinearOfMatrices&) = delete;

  tenon_linear linear;

 private:
  std::vector<int64_t> rows;
  std::vector<tenon_stored> tensors;
  std::vector<tenon_matrix> matrices;
  tenon_chain none = sdk::abi_struct<tenon_chain>();
};

MatrixDescription::Tensor tensor_of(const tenon_stored& stored, int64_t rows) {
  MatrixDescription::Tensor t{stored.name != nullptr ? stored.name : "", stored.format, {}, false};
  for (uint32_t d = 0; d < std::min<uint32_t>(stored.rank, 4); ++d) t.shape.push_back(stored.dim[d]);
  t.by_row = !t.shape.empty() && t.shape.front() == rows;
  return t;
}

}  // namespace

uint64_t MatrixDescription::Tensor::bytes() const {
  return weights::stored_bytes(format, shape).value_or(0);
}

SchemeEncoder::SchemeEncoder(ComponentConfig config, Registry& registry)
    : config_(std::move(config)), context_(host_context(registry)), instance_(context_->create(config_)) {
  if (table().describe != nullptr && table().encode != nullptr) return;
  throw Error(ErrorCode::kUsage, instance_.id() + " writes no files: it has no describe() and encode()");
}

bool SchemeEncoder::observes(const ModelMatrix& matrix) const {
  const LinearOfMatrices linear(matrix);
  return observes() && table().observed_bytes(instance_.self(), &linear.linear) > 0;
}

std::variant<MatrixDescription, std::string> SchemeEncoder::describe(const ModelMatrix& matrix) const {
  if (matrix.lookup && table().record_rows == nullptr)
    return "the scheme cannot look up rows, as an embedding needs it";
  const LinearOfMatrices linear(matrix);
  auto written = sdk::abi_struct<tenon_written>();
  Call call(instance_, "describe " + matrix.path);
  const tenon_status status = table().describe(instance_.self(), &linear.linear, &written, call.why());
  if (status == TENON_REFUSED) return std::string(call.text());
  call.check(status);
  MatrixDescription result;
  for (uint32_t t = 0; t < std::min<uint32_t>(written.n_tensors, TENON_MAX_STORED); ++t) {
    result.tensors.push_back(tensor_of(written.tensor[t], matrix.rows));
  }
  result.whole = written.whole != 0;
  if (written.description != nullptr) result.description = written.description;
  if (written.plain_names != nullptr) result.plain_names = written.plain_names;
  check(matrix, result);
  return result;
}

void SchemeEncoder::check(const ModelMatrix& matrix, const MatrixDescription& described) const {
  const auto wrong = [&](const std::string& what) {
    throw Error(ErrorCode::kPlugin, instance_.id() + ": describe " + matrix.path + ": " + what);
  };
  if (described.tensors.empty()) wrong("states no tensors");
  if (described.description.empty()) wrong("states no description");
  boost::system::error_code error;
  const boost::json::value description = boost::json::parse(described.description, error);
  if (error || !description.is_object()) wrong("states a description that is no JSON object: " + described.description);
  const boost::json::value* list = description.as_object().if_contains(described.plain_names);
  if (list != nullptr && !list->is_array()) wrong("\"" + described.plain_names + "\" of its description is no list");
  std::set<std::string> names;
  for (const MatrixDescription::Tensor& t : described.tensors) {
    if (t.name.empty() || !names.insert(t.name).second) wrong("states the name \"" + t.name + "\" twice or none");
    if (weights::safetensors_dtype(t.format).empty()) {
      wrong("tensor \"" + t.name + "\" is of a type that safetensors have not");
    }
    for (const int64_t dim : t.shape) {
      if (dim < 1) wrong("tensor \"" + t.name + "\" has a dimension of " + std::to_string(dim));
    }
    if (t.bytes() == 0) wrong("tensor \"" + t.name + "\" has no size below 2^63 bytes");
  }
}

void SchemeEncoder::encode(const ModelMatrix& matrix, const tenon_encode& rows) const {
  const LinearOfMatrices linear(matrix);
  Call call(instance_, "encode " + matrix.path);
  const tenon_status status = table().encode(instance_.self(), &linear.linear, &rows, call.why());
  if (status == TENON_REFUSED) {
    throw Error(ErrorCode::kModel, matrix.path + " cannot be stored by " + instance_.id() + ": " + call.text());
  }
  call.check(status);
}

std::vector<float> SchemeEncoder::column_factors(const SharedColumns& shared) const {
  const std::string& path = shared.matrices.front()->path;
  const std::span<const uint32_t> tied = shared.tied;
  const LinearOfMatrices linear(shared.matrices, shared.routed ? static_cast<uint32_t>(shared.observed.size()) : 0);
  std::vector<float> factors(tied.size(), 1);
  std::vector<const void*> observed;
  for (const std::span<const std::byte> state : shared.observed)
    observed.push_back(state.empty() ? nullptr : state.data());
  auto asked = sdk::abi_struct<tenon_column_factors>();
  asked.data = shared.data.data();
  asked.observed = observed.data();
  asked.tied = tied.data();
  asked.factor = factors.data();
  Call call(instance_, "column_factors " + path);
  call.check(table().column_factors(instance_.self(), &linear.linear, &asked, call.why()));
  std::map<uint32_t, float> of_number;
  for (size_t i = 0; i < factors.size(); ++i) {
    const float tied_to = of_number.emplace(tied[i], factors[i]).first->second;
    if (std::isfinite(factors[i]) && factors[i] > 0 && factors[i] == tied_to) continue;
    throw Error(ErrorCode::kPlugin,
                instance_.id() + ": column_factors " + path + ": column " + std::to_string(i) + " gets " +
                    std::to_string(factors[i]) +
                    (factors[i] == tied_to ? "; expected a number above 0"
                                           : ", and a column that is tied to it " + std::to_string(tied_to)));
  }
  return factors;
}

}  // namespace tenon
