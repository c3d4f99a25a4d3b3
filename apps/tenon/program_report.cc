// `tenon inspect --program` prints a program's ops with their tensors and costs. A cost is worked out for so many rows
// and so much context.
#include "program_report.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>

#include "json_text.h"
#include "tenon/core/error.h"

namespace tenon::app {
namespace {

std::string shape_of(const tenon_tensor& t) {
  std::string text = tenon_format_name(t.format);
  text += '[';
  for (uint32_t d = 0; d < t.rank; ++d) text += (d > 0 ? "," : "") + std::to_string(t.dim[d]);
  return text + ']';
}

const char* access_of(uint32_t access) {
  const bool reads = (access & (TENON_READ | TENON_READ_OLD)) != 0,
             writes = (access & (TENON_WRITE | TENON_WRITE_NEW)) != 0;
  return reads && writes ? "read, write" : writes ? "write" : "read";
}

struct Costs {
  double read, written, flops;
};
Costs costs_of(const Program& program, const ProgramOp& op, double rows, double context) {
  if (op.picked) rows = std::min<double>(rows, program.bounds().out_rows);
  const auto at = [&](const double(&c)[3]) { return c[0] + c[1] * rows + c[2] * rows * context; };
  return {at(op.cost.read), at(op.cost.written), at(op.cost.flops)};
}

boost::json::object op_json(const Program& program, const ProgramOp& op, const Costs& costs) {
  boost::json::array operands, chunks;
  for (const tenon_operand& o : op.operands) {
    const ProgramTensor& t = program.tensor(o.tensor);
    operands.push_back(boost::json::object{{"id", o.tensor},
                                           {"name", t.name},
                                           {"shape", shape_of(t.view)},
                                           {"access", access_of(o.access)},
                                           {"offset", t.offset},
                                           {"bytes", t.extent}});
  }
  for (uint32_t p = 0; p < op.phases; ++p) chunks.push_back(op.chunks[p]);
  return {{"path", op.path},
          {"component", op.component},
          {"op", op.name},
          {"layer", op.layer},
          {"operands", operands},
          {"chunks", chunks},
          {"scratch_bytes", op.scratch_bytes},
          {"bytes_read", costs.read},
          {"bytes_written", costs.written},
          {"flops", costs.flops}};
}

void op_line(const Program& program, const ProgramOp& op, const Costs& costs) {
  std::string tensors;
  for (const tenon_operand& o : op.operands) {
    const ProgramTensor& t = program.tensor(o.tensor);
    if (t.name.starts_with("step/")) continue;
    const bool writes = (o.access & (TENON_WRITE | TENON_WRITE_NEW)) != 0;
    tensors += (tensors.empty() ? "" : " ") + std::string(writes ? ">" : "") + shape_of(t.view);
  }
  std::printf("%-28s %-24s %-12s %12.0f %12.0f %14.0f  %s\n", op.path.c_str(), op.component.c_str(), op.name.c_str(),
              costs.read, costs.written, costs.flops, tensors.c_str());
}

const Program& choose(const Pipeline& pipeline, uint32_t rows) {
  const Program* best = nullptr;
  for (const Program* p : pipeline.programs()) {
    if (p->bounds().rows >= rows && (best == nullptr || p->bounds().rows < best->bounds().rows)) best = p;
  }
  if (best != nullptr) return *best;
  throw Error(ErrorCode::kUsage, "no program takes " + std::to_string(rows) + " rows; the largest takes " +
                                     std::to_string(pipeline.max_rows()));
}

}  // namespace

void print_program(const Pipeline& pipeline, const StepSize& size, bool json) {
  const Program& program = choose(pipeline, size.rows);
  const double rows = size.rows > 0 ? size.rows : program.bounds().rows;
  const double context = std::max(1u, size.context);
  boost::json::array ops;
  Costs sum{};
  if (!json) {
    std::printf("%-28s %-24s %-12s %12s %12s %14s  %s\n", "module", "component", "op", "bytes read", "written", "flops",
                "tensors (> is written)");
  }
  for (const ProgramOp& op : program.ops()) {
    const Costs costs = costs_of(program, op, rows, context);
    sum.read += costs.read;
    sum.written += costs.written;
    sum.flops += costs.flops;
    if (json) {
      ops.push_back(op_json(program, op, costs));
    } else {
      op_line(program, op, costs);
    }
  }
  if (!json) {
    std::printf("%zu operations, %.0f rows of %.0f tokens: %.0f bytes read, %.0f written, %.0f flops\n",
                program.ops().size(), rows, context, sum.read, sum.written, sum.flops);
    return;
  }
  const boost::json::object out = {{"rows", rows},
                                   {"context", context},
                                   {"activation_bytes", program.activation_bytes()},
                                   {"bytes_read", sum.read},
                                   {"bytes_written", sum.written},
                                   {"flops", sum.flops},
                                   {"ops", ops}};
  std::printf("%s\n", json_text(out).c_str());
}

}  // namespace tenon::app
