// These are the places where the columns of x may be scaled. A scheme that rounds weights may want columns of them
// larger, and x smaller; see FOLDING in tenon/abi/quantization.h. That changes nothing where x is proportional to
// weights that stand before it: those are divided, so that a file needs no place for factors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tenon {

class ModelListing;

// These matrices share x, and `source` says what x is proportional to.
struct Folding {
  // These are elements of a vector: those of a norm, or a bias.
  struct Elements {
    std::string tensor;
    int64_t first = 0;
    float added = 0;  // to an element as it is stored: some norms are stored less one
  };

  int32_t layer = -1;
  std::vector<std::string> consumers;  // names of the matrices that take x; of experts [experts][as many for each]
  uint32_t experts = 0;                // 0: the consumers are no experts'
  std::string router;             // the matrix of this name takes x as well, and chooses the experts; "": there is none
  std::vector<uint32_t> source;   // by column of x: elements and rows of this number make it
  uint32_t sources = 0;           // so many there are
  std::vector<Elements> vectors;  // they are divided
  std::string producer;           // the rows of this matrix are divided; "": there is none
  int64_t first_row = 0;
};

// Finds out of a model's declarations, and of the step that it records, where scaling is exact:
//   - a norm whose result goes into products and nowhere else, or into the gate and up of experts and their router: its
//     weight and bias;
//   - attention whose result goes into one product: the rows of V and its bias, one row for all heads that share it;
//   - a gate that multiplies by one half of its columns (silu_mul, gelu_mul): the rows of that half and their bias, or
//     each expert's rows of `up`, which have none.
// Whatever the ops between make something else of is left out.
std::vector<Folding> foldings_of(const ModelListing& model);

}  // namespace tenon
