// A checked build looks at plans: tensors stay within what they were cut from, their storage or the arena; no two that
// are alive together share a byte; and no op writes to a view whose own elements do. A function that looks returns the
// first problem in words, or "".
#include "checks.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace tenon {
namespace {

std::string name_of(std::span<const ProgramTensor> tensors, size_t id) {
  return "tensor " + std::to_string(id) + " (\"" + tensors[id].name + "\")";
}

bool alive_together(const ProgramTensor& a, const ProgramTensor& b) {
  return a.first_op <= b.last_op && b.first_op <= a.last_op;
}

bool share_bytes(const ProgramTensor& a, const ProgramTensor& b) {
  return a.offset < b.offset + b.extent && b.offset < a.offset + a.extent;
}

// Returns whether two elements of the view lie on the same byte. Sorted by stride, each dimension has to step over
// everything that the dimensions before it span.
bool overlaps_itself(const tenon_tensor& t) {
  const tenon_block block = tenon_format_block(t.format);
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, steps
  for (uint32_t d = 0; d < t.rank; ++d) {
    const bool innermost = d + 1 == t.rank;
    const int64_t n = innermost ? (t.dim[d] + block.elements - 1) / block.elements : t.dim[d];
    if (n > 1) dims.emplace_back(t.stride[d], n - 1);
  }
  std::sort(dims.begin(), dims.end());
  int64_t spanned = block.bytes;
  for (const auto& [stride, steps] : dims) {
    if (stride < spanned) return true;
    spanned += stride * steps;
  }
  return false;
}

std::string bounds_problem(std::span<const ProgramTensor> tensors, uint64_t activation_bytes,
                           const StorageTable& storages) {
  for (size_t id = 1; id < tensors.size(); ++id) {
    const ProgramTensor& t = tensors[id];
    const ProgramTensor& root = tensors[t.root];
    const uint64_t end = t.offset + t.extent;
    if (t.extent != tensor_extent(t.view)) return name_of(tensors, id) + " has another extent than its view";
    if (t.storage != root.storage || t.offset < root.offset || end > root.offset + root.extent) {
      return name_of(tensors, id) + " leaves the tensor that it is a part of";
    }
    if (t.storage >= 0) {
      // A tensor has one byte at least, a store of a cache without layers none.
      const uint64_t bytes = std::max<uint64_t>(1, storages[static_cast<uint32_t>(t.storage)].bytes);
      if (end > bytes) return name_of(tensors, id) + " leaves its storage of " + std::to_string(bytes) + " bytes";
    } else if (root.first_op != UINT32_MAX && end > activation_bytes) {
      return name_of(tensors, id) + " leaves the arena of " + std::to_string(activation_bytes) + " bytes";
    }
  }
  return "";
}

std::string sharing_problem(std::span<const ProgramTensor> tensors) {
  std::vector<size_t> roots;
  for (size_t id = 1; id < tensors.size(); ++id) {
    const ProgramTensor& t = tensors[id];
    if (t.storage < 0 && t.root == id && t.first_op != UINT32_MAX) roots.push_back(id);
  }
  for (size_t i = 0; i < roots.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const ProgramTensor &a = tensors[roots[i]], &b = tensors[roots[j]];
      if (!alive_together(a, b) || !share_bytes(a, b)) continue;
      return name_of(tensors, roots[j]) + " and " + name_of(tensors, roots[i]) + " are alive together and share bytes";
    }
  }
  return "";
}

std::string write_problem(std::span<const ProgramTensor> tensors, std::span<const ProgramOp> ops) {
  for (const ProgramOp& op : ops) {
    for (const tenon_operand& o : op.operands) {
      const bool writes = (o.access & (TENON_WRITE | TENON_WRITE_NEW)) != 0;
      if (!writes || !overlaps_itself(tensors[o.tensor].view)) continue;
      return op.path + " (" + op.component + "): " + op.name + " writes " + name_of(tensors, o.tensor) +
             ", of which elements share bytes";
    }
  }
  return "";
}

}  // namespace

std::string plan_problem(std::span<const ProgramTensor> tensors, std::span<const ProgramOp> ops,
                         uint64_t activation_bytes, const StorageTable& storages) {
  std::string problem = bounds_problem(tensors, activation_bytes, storages);
  if (problem.empty()) problem = sharing_problem(tensors);
  if (problem.empty()) problem = write_problem(tensors, ops);
  return problem;
}

void fill_dead(const Program& program, size_t op) {
  for (tenon_tid id = 1; id < program.tensor_count(); ++id) {
    const ProgramTensor& t = program.tensor(id);
    if (t.storage < 0 && t.root == id && t.last_op == op && t.first_op != UINT32_MAX) {
      std::memset(program.address(id), 0xff, t.extent);
    }
  }
}

}  // namespace tenon
