// This looks at what modules leave. A step runs op by op, and the rows that are looked at are copied as soon as their
// op has ended: the next op may take their memory.
#include <algorithm>
#include <map>
#include <optional>

#include "../config/findings.h"
#include "pipeline_impl.h"
#include "tenon/core/error.h"
#include "tenon/core/linked_values.h"

namespace tenon {
namespace {

// Returns the tensor of rows that an op leaves, if it leaves one.
std::optional<tenon_tid> rows_left_by(const Program& program, const ProgramOp& op) {
  for (const tenon_operand& o : op.operands) {
    const ProgramTensor& t = program.tensor(o.tensor);
    const tenon_format format = t.view.format;
    const bool numbers = format == TENON_F32 || format == TENON_F16 || format == TENON_BF16 || format == TENON_F8E4M3;
    if ((o.access & TENON_WRITE) != 0 && program.tensor(t.root).live >= 0 && numbers) return o.tensor;
  }
  return std::nullopt;
}

// Returns the number of the last op that leaves rows, by the path of its module.
std::map<std::string_view, size_t> last_ops(const Program& program) {
  std::map<std::string_view, size_t> last;
  for (size_t i = 0; i < program.ops().size(); ++i) {
    if (rows_left_by(program, program.ops()[i])) last[program.ops()[i].path] = i;
  }
  return last;
}

// Returns "layers.3." for "layers.3.mlp.down", and "" for what is in no layer.
std::string layer_prefix(const std::string& path) {
  constexpr std::string_view kLayers = "layers.";
  const size_t dot = path.starts_with(kLayers) ? path.find('.', kLayers.size()) : std::string::npos;
  return dot == std::string::npos ? "" : path.substr(0, dot + 1);
}

// Names what there is: of the layer if the path is in one that the model has, else of what is in no layer.
std::string names_beside(const std::string& path, const std::vector<std::string>& known) {
  const auto names_in = [&](const std::string& prefix) {
    std::string names;
    for (const std::string& k : known) {
      if (layer_prefix(k) == prefix) names += (names.empty() ? "" : ", ") + k.substr(prefix.size());
    }
    return names;
  };
  const std::string prefix = layer_prefix(path);
  const std::string of_layer = prefix.empty() ? "" : names_in(prefix);
  if (!of_layer.empty()) return prefix.substr(0, prefix.size() - 1) + " has " + of_layer;
  size_t layers = 0;
  while (!names_in("layers." + std::to_string(layers) + '.').empty()) ++layers;
  return "there are " + names_in("") + ", and those of the " + std::to_string(layers) + " layers, such as " +
         names_in("layers.0.") + " of layers.0";
}

}  // namespace

Pipeline::Impl::Rows Pipeline::Impl::rows_of(const Program& program, tenon_tid id, uint32_t count,
                                             std::vector<float>& buffer) const {
  // Repeated rows are parts of those that the tensor has.
  const tenon_tensor &own = program.tensor(id).view, &root = program.tensor(program.tensor(id).root).view;
  const tenon_tensor& t = own.dim[0] == root.dim[0] ? own : root;
  // These stand between two products of a device with queues.
  if (t.format != TENON_F32) {
    std::vector<std::byte> bytes(tensor_extent(root));
    if (count > 0) context.copy_now(bytes.data(), program.address(program.tensor(id).root), bytes.size());
    const LinkedValues values(root, bytes.data());
    buffer.clear();
    for (uint32_t r = 0; r < count; ++r) {
      for (int64_t c = 0; c < values.columns(); ++c) buffer.push_back(values.at(r, c));
    }
    return {buffer.data(), values.columns(), values.columns(), count};
  }
  const int64_t columns = t.rank > 1 ? t.dim[1] : 1,
                stride = t.stride[0] / static_cast<int64_t>(tenon_format_block(t.format).bytes);
  const auto* data = static_cast<const float*>(program.address(id));
  if (context.queues() && count > 0) {
    buffer.resize(static_cast<size_t>((count - 1) * stride + columns));
    context.copy_now(buffer.data(), data, buffer.size() * sizeof(float));
    data = buffer.data();
  }
  return {data, stride, columns, count};
}

// Lists the paths of all programs in the order of their ops. A draft model's are not among
// them: its passes have rows of their own.
std::vector<std::string> Pipeline::Impl::paths_with_results() const {
  std::vector<std::string> paths;
  for (const StepProgram& p : programs) {
    for (const ProgramOp& op : p.program->ops()) {
      const bool drafts = draft_model && op.path.starts_with(draft_model->name());
      if (drafts || !rows_left_by(*p.program, op)) continue;
      if (std::find(paths.begin(), paths.end(), op.path) == paths.end()) paths.push_back(op.path);
    }
  }
  return paths;
}

Status Pipeline::Impl::run_and_look(const Program& program, const StepBatch& batch) {
  struct Copied {
    size_t op;
    uint32_t rows, columns;
    std::vector<float> values;
  };
  const std::map<std::string_view, size_t> last = last_ops(program);
  std::vector<Copied> copied;
  std::vector<float> buffer;
  std::exception_ptr problem;
  const auto copy = [&](size_t index) {
    const ProgramOp& op = program.ops()[index];
    const auto found = last.find(op.path);
    if (found == last.end() || found->second != index) return;
    if (std::find(looked_at.begin(), looked_at.end(), op.path) == looked_at.end()) return;
    const tenon_tid id = *rows_left_by(program, op);
    const size_t live[] = {batch.token.size(), batch.seq_slot.size(), batch.out_row.size()};  // see TENON_STEP_LIVE
    const Rows rows =
        rows_of(program, id, static_cast<uint32_t>(live[program.tensor(program.tensor(id).root).live]), buffer);
    if (rows.count == 0) return;
    Copied& to = copied.emplace_back(Copied{index, rows.count, static_cast<uint32_t>(rows.columns), {}});
    for (uint32_t r = 0; r < rows.count; ++r) {
      const float* row = rows.data + r * rows.stride;
      to.values.insert(to.values.end(), row, row + rows.columns);
    }
  };
  const Status status = runner->run_each(program, program.ops().size(), [&](size_t op) {
    try {
      if (!problem) copy(op);
    } catch (...) {  // nothing may leave a thread of the device that walks
      problem = std::current_exception();
    }
  });
  if (!status.ok()) return status;
  try {
    if (problem) std::rethrow_exception(problem);
  } catch (const Error& e) {
    return Status::error(e.code(), e.diagnostics().front().message);
  }
  for (const Copied& c : copied) {
    const ProgramOp& op = program.ops()[c.op];
    look({.path = op.path,
          .component = op.component,
          .op = op.name,
          .rows = c.rows,
          .columns = c.columns,
          .values = c.values});
  }
  return {};
}

void Pipeline::look_at(std::vector<std::string> paths, Look look) {
  const std::vector<std::string> known = impl_->paths_with_results();
  for (const std::string& path : paths) {
    if (std::find(known.begin(), known.end(), path) != known.end()) continue;
    throw Error(ErrorCode::kUsage, "no op leaves a result for \"" + path + '"' + config::suggestion(path, known) +
                                       " (" + names_beside(path, known) + ')');
  }
  impl_->restated = true;  // the step that was launched ahead was not looked at
  impl_->look = paths.empty() ? Look() : std::move(look);
  impl_->looked_at = std::move(paths);
}

}  // namespace tenon
