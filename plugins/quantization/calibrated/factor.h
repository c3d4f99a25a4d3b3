// This computes the inverse of a Cholesky factor, in double and in place, on several threads.
#pragma once

#include "workers.h"

namespace tenon::calibrated {

// a (n, n) is symmetric and positive definite, and its lower triangle counts. In its place comes the
// inverse of its lower Cholesky factor L, a = L L^T, with zeros above the diagonal. False: a is not
// positive definite, and nothing of it is left.
bool invert_cholesky_factor(double* a, uint32_t n, const Products& products, Workers& workers);

}  // namespace tenon::calibrated
