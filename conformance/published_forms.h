// These are random matrices in the forms of published checkpoints, written bit by bit from what those who publish them
// say, with what each weight stands for in float64. Nothing here is shared with the schemes.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "conformance/quantization_host.h"

namespace tenon::conformance {

struct PublishedForm {
  std::string label, scheme;  // the scheme reads it
  std::string description;    // it is config.json's quantization_config
  std::function<FileMatrix(const FileShape& shape, std::mt19937& random)> make;
  bool permuted = false;   // columns of a group do not stand side by side: no embedding is stored so
  bool x_in_int8 = false;  // rows of x become int8
  bool x_apart = false;    // some of x may stay out of int8, so that nothing around the product is claimed
};

// Returns all forms. Rows are a multiple of 8, or 32 with 3 bits; k is a multiple of 128.
const std::vector<PublishedForm>& published_forms();

// Returns a site of matrices in a form.
SiteCase published_site(const PublishedForm& form, std::vector<int64_t> rows, int64_t k, uint32_t experts = 0);

}  // namespace tenon::conformance
