#include "sampler_check.h"

#include <initializer_list>

namespace tenon {
namespace {

// This is one of the tensors that a processor leaves.
struct Wanted {
  const char* name;
  tenon_tid id;
  tenon_format format;
  std::initializer_list<int64_t> dims;  // the least that each must have
};

std::string tensor_problem(const ProgramRecording& rec, const Wanted& wanted) {
  const std::string leaves = std::string("leaves ") + wanted.name + " that ";
  if (!rec.has(wanted.id)) return leaves + "are no tensor";
  const tenon_tensor& t = rec.view(wanted.id);
  if (t.format != wanted.format) {
    return leaves + "are " + tenon_format_name(t.format) + ", not " + tenon_format_name(wanted.format);
  }
  std::string has, needs;
  bool fits = t.rank == wanted.dims.size();
  for (uint32_t d = 0; d < t.rank; ++d) has += (d == 0 ? "" : " x ") + std::to_string(t.dim[d]);
  size_t d = 0;
  for (const int64_t n : wanted.dims) {
    fits = fits && t.dim[d] >= n;
    needs += (d++ == 0 ? "" : " x ") + std::to_string(n);
  }
  if (!fits) return leaves + "have " + has + " elements; this step needs " + needs;
  if (t.stride[t.rank - 1] != tenon_format_block(t.format).bytes) return leaves + "do not lie side by side in a row";
  return rec.written_since(0, wanted.id) ? "" : leaves + "no operation writes";
}

}  // namespace

std::string candidates_problem(const ProgramRecording& rec, size_t first_op, const tenon_candidates& given,
                               const tenon_candidates& left) {
  if (left.form != TENON_DENSE && left.form != TENON_SPARSE) {
    return "leaves candidates of the form " + std::to_string(left.form) + ", which is neither DENSE nor SPARSE";
  }
  if (left.vocab != given.vocab) {
    return "leaves a vocabulary of " + std::to_string(left.vocab) + " tokens; it was given " +
           std::to_string(given.vocab);
  }
  const bool sparse = left.form == TENON_SPARSE;
  if (left.cap == 0 || left.cap > left.vocab) {
    return "leaves room for " + std::to_string(left.cap) + " of " + std::to_string(left.vocab) + " candidates";
  }
  const int64_t rows = rec.bounds().out_rows, width = sparse ? left.cap : left.vocab;
  std::string problem = tensor_problem(rec, {"logits", left.logits, TENON_F32, {rows, width}});
  if (problem.empty() && sparse) problem = tensor_problem(rec, {"ids", left.id, TENON_I32, {rows, width}});
  if (problem.empty() && sparse) problem = tensor_problem(rec, {"counts", left.count, TENON_I32, {rows}});
  if (!problem.empty()) return problem;
  for (const tenon_tid input : {given.logits, given.id, given.count}) {
    if (rec.has(input) && rec.written_since(first_op, input)) {
      return "writes to the candidates that it was given; it has to make new tensors";
    }
  }
  return "";
}

std::string selection_problem(const ProgramRecording& rec, size_t first_op, tenon_tid next) {
  return rec.written_since(first_op, next) ? "" : "chooses no token: none of its operations writes what is next";
}

}  // namespace tenon
