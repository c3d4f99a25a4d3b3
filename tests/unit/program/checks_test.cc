// This tests the checks of a checked build, each with a plan that breaks what it looks at.
#include "../../../core/src/program/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tenon/core/error.h"
#include "tenon/sdk/recorder.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;

// There are two activations of 64 bytes: 1 is written by op 0 and read by op 1, which writes 2. 3 is a part of 2, 4 a
// storage.
struct Plan {
  StorageTable storages;
  std::vector<ProgramTensor> tensors{5};
  std::vector<ProgramOp> ops{2};
  uint64_t activation_bytes = 512;

  Plan() {
    set(1, 0, 16);
    set(2, 256, 16);
    set(3, 264, 4);
    set(4, 0, 16);
    tensors[1].first_op = 0;
    tensors[1].last_op = 1;
    tensors[2].first_op = 1;
    tensors[2].last_op = 2;
    tensors[3].root = 2;
    tensors[4].storage = storages.add("state", MemoryKind::kState, 64);
    ops[0].operands = {{1, TENON_WRITE}};
    ops[1].path = "layers.0.mlp";
    ops[1].component = "op.test";
    ops[1].name = "sum";
    ops[1].operands = {{1, TENON_READ}, {2, TENON_WRITE}, {4, TENON_READ}};
  }
  void set(tenon_tid id, uint64_t offset, int64_t columns) {
    ProgramTensor& t = tensors[id];
    t.view = sdk::tensor(TENON_F32, {columns});
    t.name = "t" + std::to_string(id);
    t.offset = offset;
    t.root = id;
    t.extent = tensor_extent(t.view);
  }
  void see_as(tenon_tid id, std::initializer_list<int64_t> dims, std::initializer_list<int64_t> strides) {
    tenon_tensor& view = tensors[id].view;
    view.rank = static_cast<uint32_t>(dims.size());
    std::copy(dims.begin(), dims.end(), view.dim);
    std::copy(strides.begin(), strides.end(), view.stride);
    tensors[id].extent = tensor_extent(view);
  }
  std::string problem() const { return plan_problem(tensors, ops, activation_bytes, storages); }
};

TEST(PlanProblem, IsNoneOfASoundPlan) {
  EXPECT_EQ(Plan().problem(), "");
}

TEST(PlanProblem, IsASliceThatLeavesItsRoot) {
  Plan plan;
  plan.tensors[3].offset = 308;
  EXPECT_THAT(plan.problem(), HasSubstr("tensor 3 (\"t3\") leaves the tensor that it is a part of"));
  plan.tensors[3].offset = 252;
  EXPECT_THAT(plan.problem(), HasSubstr("tensor 3"));
}

TEST(PlanProblem, IsATensorThatLeavesItsMemory) {
  Plan beyond_arena;
  beyond_arena.activation_bytes = 319;
  EXPECT_THAT(beyond_arena.problem(), HasSubstr("tensor 2 (\"t2\") leaves the arena of 319 bytes"));
  Plan beyond_storage;
  beyond_storage.set(4, 0, 17);
  beyond_storage.tensors[4].storage = 0;
  EXPECT_THAT(beyond_storage.problem(), HasSubstr("tensor 4 (\"t4\") leaves its storage of 64 bytes"));
}

TEST(PlanProblem, IsAnExtentThatIsNotTheViews) {
  Plan plan;
  plan.tensors[1].extent = 60;
  EXPECT_THAT(plan.problem(), HasSubstr("tensor 1 (\"t1\") has another extent than its view"));
}

TEST(PlanProblem, IsSharedMemoryOnlyOfTensorsThatAreAliveTogether) {
  Plan plan;
  plan.tensors[2].offset = 60;
  plan.tensors[3].offset = 68;
  EXPECT_THAT(plan.problem(), HasSubstr("\"t1\") and tensor 2 (\"t2\") are alive together and share bytes"));
  plan.tensors[1].last_op = 0;
  EXPECT_EQ(plan.problem(), "");
}

TEST(PlanProblem, IsAWrittenViewWhoseElementsShareBytes) {
  Plan plan;
  plan.see_as(2, {4, 4}, {12, 4});
  EXPECT_THAT(plan.problem(),
              HasSubstr("layers.0.mlp (op.test): sum writes tensor 2 (\"t2\"), of which elements share"));
  plan.see_as(2, {4, 4}, {4, 16});  // this is a transposed view
  EXPECT_EQ(plan.problem(), "");
  plan.see_as(2, {4, 1, 4}, {16, 0, 4});  // a dimension of one steps nowhere
  EXPECT_EQ(plan.problem(), "");
  plan.see_as(1, {4, 4}, {0, 4});  // op 0 writes it
  EXPECT_THAT(plan.problem(), HasSubstr("tensor 1"));
}

// One op after another adds 1 to what the one before left.
class FillDead : public testing::Test {
 protected:
  struct NoArgs {};
  static void add_one(const NoArgs&, const sdk::Part& part) { *part.ptr<float>(0) = *part.ptr<const float>(1) + 1; }

  FillDead() : recording_(bounds(), storages_, state_) {
    recording_.scope("layers.0", "op.test", 0);
    sdk::Recorder rec(recording_.recorder());
    for (tenon_tid& id : ids_) id = recording_.temp(sdk::tensor(TENON_F32, {1}));
    for (size_t i = 1; i < ids_.size(); ++i) {
      const std::vector<tenon_operand> operands = {{ids_[i], TENON_WRITE}, {ids_[i - 1], TENON_READ}};
      rec.emit<&add_one>({.name = "add_one", .operands = operands, .chunks = {1}}, NoArgs{});
    }
    const tenon_tid last[] = {ids_.back()};
    program_ = recording_.finish(last);
    arena_.resize(program_->activation_bytes());
    program_->bind_addresses(storages_, {.activations = arena_.data()});
  }
  static tenon_bounds bounds() {
    auto b = sdk::abi_struct<tenon_bounds>();
    b.rows = b.seqs = b.rows_per_seq = b.out_rows = b.slots = 1;
    b.kv_len = 16;
    return b;
  }
  float value(size_t i) const {
    float v = 0;
    std::memcpy(&v, program_->address(ids_[i]), sizeof(v));
    return v;
  }

  StorageTable storages_;
  std::vector<uint32_t> state_ = std::vector<uint32_t>(1);
  ProgramRecording recording_;
  std::array<tenon_tid, 4> ids_{};
  std::unique_ptr<Program> program_;
  std::vector<std::byte> arena_;
};

TEST_F(FillDead, FillsWhatNoLaterOpTouchesAndLeavesTheRest) {
  fill_dead(*program_, 0);
  EXPECT_TRUE(std::isnan(value(0)));
  EXPECT_EQ(value(1), 0.0F);
  fill_dead(*program_, 1);
  EXPECT_TRUE(std::isnan(value(1)));
}

TEST_F(FillDead, LeavesOutputsAlone) {
  fill_dead(*program_, program_->ops().size() - 1);
  EXPECT_TRUE(std::isnan(value(2)));
  EXPECT_EQ(value(3), 0.0F);
}

}  // namespace
}  // namespace tenon
