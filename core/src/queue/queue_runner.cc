// Runs programs on a device with queues. A program is launched op by op until its second run, in which it is captured
// as a graph, if its step is small enough for that to pay.
#include "queue_runner.h"

#include <algorithm>
#include <set>
#include <utility>

#include "../fault.h"

namespace tenon {
namespace {

// Larger steps take so long that launching their ops one by one costs nothing, and graphs take memory.
constexpr uint32_t kGraphRows = 16;

Status failed(const ProgramOp& op, const std::string& why) {
  return Status::error(ErrorCode::kPlugin, op.path + ": " + op.component + " failed in " + op.name + ": " + why);
}

}  // namespace

QueueRunner::QueueRunner(const tenon_device& device, void* queue, Execution execution, trace::Recorder* recorder)
    : device_(device),
      device_id_(std::string("device.") + device.kind),
      queue_(queue),
      execution_(execution),
      recorder_(recorder) {}

QueueRunner::~QueueRunner() {
  device_.wait(device_.self, queue_, nullptr);
  release_graphs();
}

void QueueRunner::release(Prepared& prepared) {
  for (void** graph : {&prepared.graph, &prepared.second}) {
    if (*graph != nullptr) device_.graph_release(device_.self, std::exchange(*graph, nullptr));
  }
}

void QueueRunner::release_graphs() {
  for (auto& [program, prepared] : prepared_) release(prepared);
}

void QueueRunner::prepare(const Program& program) {
  if (recorder_ != nullptr && track_ == &idle_) track_ = &recorder_->add_track("main");
  prepared_[&program];
}

Status QueueRunner::run(const Program& program, const StepLoad& load) {
  return run_first(program, load, program.ops().size());
}

Status QueueRunner::run_first(const Program& program, const StepLoad& load, size_t middle) {
  Prepared& prepared = prepared_[&program];
  Status status = decide(program, load, prepared);
  if (status.ok()) status = enqueue({program, 0, middle}, prepared.as_graph, prepared.graph);
  return blame(std::move(status));
}

Status QueueRunner::run_rest(const Program& program, const StepLoad&, size_t middle) {
  Prepared& prepared = prepared_[&program];
  return blame(enqueue({program, middle, program.ops().size()}, prepared.as_graph, prepared.second));
}

// A kernel that fails is noticed by whatever is asked of the device next, which may have nothing to do with it: only
// where the queue is sound is the op to blame whose launch failed.
Status QueueRunner::blame(Status status) {
  if (status.ok() || execution_ == Execution::kPerOp) return status;
  Status earlier = finish();
  if (earlier.ok()) return status;
  return Status::error(ErrorCode::kPlugin, earlier.message() + "; noticed when " + status.message());
}

// Decides how a run is launched. A graph is captured on the second run: the first, without one, has every library load
// its kernels, which a capture could not.
Status QueueRunner::decide(const Program& program, const StepLoad& load, Prepared& prepared) {
  if (recent_.front() != &program) {
    std::rotate(recent_.begin(), recent_.end() - 1, recent_.end());
    recent_.front() = &program;
  }
  const bool graphs = execution_ == Execution::kGraph || execution_ == Execution::kAuto;
  watched_ = static_cast<bool>(watch_.begin);
  const bool one_by_one = watched_ && watch_.begin(program, load);
  if (one_by_one && (prepared.graph != nullptr || prepared.second != nullptr)) {
    Status status = finish();
    if (!status.ok()) return status;
    release(prepared);
  }
  prepared.as_graph = graphs && !one_by_one && program.bounds().rows <= kGraphRows && prepared.runs++ > 0;
  return {};
}

Status QueueRunner::enqueue(const Piece& piece, bool as_graph, void*& graph) {
  if (!as_graph) return launch(piece, watched_);
  if (graph == nullptr) {
    Status status = capture(piece, graph);
    if (!status.ok()) return status;
  }
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (device_.replay(device_.self, graph, queue_, &why) == TENON_OK) return {};
  return Status::error(ErrorCode::kPlugin, std::string("device.") + device_.kind + ": replay: " + text);
}

Status QueueRunner::capture(const Piece& piece, void*& graph) {
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  const auto problem = [&](const char* doing) {
    return Status::error(ErrorCode::kPlugin, std::string("device.") + device_.kind + ": " + doing + ": " + text);
  };
  if (device_.capture_begin(device_.self, queue_, &why) != TENON_OK) return problem("begin capture");
  Status status = launch(piece, false);
  const tenon_status ended = device_.capture_end(device_.self, queue_, &graph, &why);
  if (!status.ok()) return status;
  if (ended == TENON_OK) return {};
  return Status::error(ErrorCode::kPlugin,
                       problem("end capture").message() + " (pipeline.execution = \"recorded\" goes without graphs)");
}

Status QueueRunner::launch(const Piece& piece, bool watched) {
  const Program& program = piece.program;
  for (size_t i = piece.first; i < piece.end; ++i) {
    if (watched) watch_.op(program, i);
    Status status = launch_op(program, i);
    if (status.ok() && execution_ == Execution::kPerOp) {
      status = finish();
      if (!status.ok()) status = failed(program.ops()[i], status.message());
    }
    if (!status.ok()) return status;
  }
  if (watched && piece.end == program.ops().size()) watch_.op(program, piece.end);
  return {};
}

Status QueueRunner::run_each(const Program& program, size_t ops, const std::function<void(size_t op)>& done) {
  recent_.front() = &program;
  for (size_t i = 0; i < ops; ++i) {
    Status status = launch_op(program, i);
    if (status.ok()) status = finish();
    if (!status.ok()) return status;
    done(i);
  }
  return {};
}

Status QueueRunner::launch_op(const Program& program, size_t i) {
  const ProgramOp& op = program.ops()[i];
  char text[512] = "";
  tenon_reason why{text, sizeof(text)};
  const fault::InComponent in(op.component.c_str(), op.name.c_str(), op.path.c_str());
  if (op.launch(op.self, op.args.data(), &program.launch(i), &why) == TENON_OK) return {};
  return failed(op, text);
}

Status QueueRunner::watch(OpWatch watch) {
  Status status = finish();
  release_graphs();
  watch_ = std::move(watch);
  watched_ = false;
  return status;
}

Status QueueRunner::finish() {
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  const fault::InComponent in(device_id_.c_str(), "wait for what it was given");
  if (device_.wait(device_.self, queue_, &why) == TENON_OK) return {};
  std::string message = std::string("a kernel failed on device.") + device_.kind + ": " + text;
  if (execution_ != Execution::kPerOp) message += suspects();
  return Status::error(ErrorCode::kPlugin, message);
}

std::string QueueRunner::suspects() const {
  if (recent_.front() == nullptr) return "";
  std::set<std::string> components;
  for (const Program* program : recent_) {
    if (program == nullptr) continue;
    for (const ProgramOp& op : program->ops()) components.insert(op.component);
  }
  std::string text = "; it is of";
  for (const std::string& c : components) text += (c == *components.begin() ? " " : ", ") + c;
  return text + " (pipeline.execution = \"per_op\" tells which, and which op)";
}

}  // namespace tenon
