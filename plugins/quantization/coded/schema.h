// A scheme says of itself to the bases of coding.h and to those of published checkpoints (../published) what these
// concepts ask, beside its name and its parameters; the class with it is its Schema. Worked example: nf4/schema.h,
// whose two codings share one book of sixteen numbers; on a GPU nf4/cuda.cu adds how each is packed (cuda_scheme.cuh).
#pragma once

#include <concepts>
#include <iterator>
#include <memory>
#include <optional>

#include "coding.h"
#include "quantize.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/params.h"

namespace tenon::published {
class Matrix;
class Writer;
}  // namespace tenon::published

namespace tenon::coded {

template <class S>
concept HasCodings = requires {
  // It may hold a matrix in each of these, of which those that pack (Coding::packs()) stand first.
  { std::data(S::kCodings) } -> std::convertible_to<const Coding*>;
  requires WeightCodes<typename S::template Codes<0>>;  // Codes<i> stand for weights in kCodings[i].
};

// It quantizes plain matrices, too.
template <class S>
concept Quantizes = HasCodings<S> && requires(const sdk::Params& params) {
  { S::choose(params) } -> std::same_as<uint32_t>;  // Returns the index in kCodings for what is quantized here.
};

// Groups are of more sizes than its codings have.
template <class S>
concept TakesGroups = requires(const sdk::Params& params, const Holding& chosen, uint32_t k, const tenon_matrix& m) {
  // So many weights share a scale of what is quantized here; choose() returns the coding for it.
  { S::group(params) } -> std::same_as<uint32_t>;
  // Returns how rows of k weights are held and written.
  { S::fitted(chosen, k) } -> std::same_as<Holding>;
  // Returns what the tensors' shapes say if they are those of a matrix in the file.
  { S::guess(m) } -> std::same_as<std::optional<Holding>>;
};

// Returns how a scheme with such parameters holds what it quantizes.
template <Quantizes S>
Holding chosen_by(const sdk::Params& params) {
  const uint32_t index = S::choose(params);
  if constexpr (TakesGroups<S>) return {index, S::group(params)};
  return {index, S::kCodings[index].group};
}
// Returns how it holds a matrix as the file has it; nothing for a matrix that it quantizes.
template <Quantizes S>
std::optional<Holding> stored_by(const tenon_linear& s, uint32_t mat) {
  if constexpr (TakesGroups<S>) return stored_holding(s, mat, S::kCodings, S::guess(s.matrix[mat]));
  return stored_holding(s, mat, S::kCodings, {});
}

// It reads matrices of published checkpoints, which are no tensors of its own. published() throws
// Refused for a matrix that is damaged. For a matrix in no such form it returns null if the scheme
// also quantizes, and throws Refused if not.
template <class S>
concept ReadsPublished = requires(const tenon_linear& s, uint32_t mat) {
  { S::published(s, mat) } -> std::same_as<std::unique_ptr<published::Matrix>>;
};

// It also writes such forms. writer() returns null where the parameters want tensors of the scheme's own.
template <class S>
concept WritesPublished = requires(const sdk::Params& params) {
  { S::writer(params) } -> std::same_as<std::unique_ptr<published::Writer>>;
};

// It takes the sites of experts on a GPU, too.
template <class S>
concept RoutesRows = requires { requires S::kRoutesRows; };

}  // namespace tenon::coded
