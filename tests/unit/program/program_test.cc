// These tests record programs and look at what was planned: lifetimes, places in the arena, stable operands, classes of
// blocks.
#include "tenon/core/program.h"

#include <gtest/gtest.h>

#include <random>

#include "../../../core/src/cpu/walker.h"
#include "tenon/core/error.h"
#include "tenon/sdk/recorder.h"

namespace tenon {
namespace {

struct NoArgs {};
void nothing(const NoArgs&, const sdk::Part&) {}

tenon_bounds bounds() {
  auto b = sdk::abi_struct<tenon_bounds>();
  b.rows = 4;
  b.seqs = 1;
  b.rows_per_seq = 4;
  b.out_rows = 1;
  b.kv_len = 16;
  b.slots = 1;
  return b;
}

class ProgramTest : public testing::Test {
 protected:
  ProgramTest() {
    state_.push_back(0);
    for (uint32_t role = 1; role <= TENON_STEP_NEXT; ++role) {
      state_.push_back(storages_.add("step/" + std::to_string(role), MemoryKind::kState, 64));
    }
    recording_ = std::make_unique<ProgramRecording>(bounds(), storages_, state_);
    recording_->scope("layers.0.mlp", "quantization.test", 0);
  }

  tenon_tid temp(int64_t n) { return recording_->temp(sdk::tensor(TENON_F32, {n})); }
  void op(std::initializer_list<tenon_operand> operands) {
    sdk::Recorder rec(recording_->recorder());
    const std::vector<tenon_operand> list(operands);
    rec.emit<&nothing>({.name = "op", .operands = list, .chunks = {1}}, NoArgs{});
  }

  StorageTable storages_;
  std::vector<uint32_t> state_;
  std::unique_ptr<ProgramRecording> recording_;
};

TEST_F(ProgramTest, TensorsAliveTogetherNeverShareMemory) {
  std::mt19937 random(7);
  std::vector<tenon_tid> ids;
  for (int i = 0; i < 60; ++i) ids.push_back(temp(1 + static_cast<int64_t>(random() % 2000)));
  for (int i = 0; i < 200; ++i) {
    op({{ids[random() % ids.size()], TENON_READ}, {ids[random() % ids.size()], TENON_WRITE}});
  }
  const auto program = recording_->finish({});
  uint64_t sum = 0;
  for (size_t a = 1; a < program->tensor_count(); ++a) {
    const ProgramTensor& x = program->tensor(static_cast<tenon_tid>(a));
    sum += x.extent;
    if (x.first_op == UINT32_MAX) continue;
    EXPECT_LE(x.offset + x.extent, program->activation_bytes());
    EXPECT_EQ(x.offset % 256, 0u);
    for (size_t b = a + 1; b < program->tensor_count(); ++b) {
      const ProgramTensor& y = program->tensor(static_cast<tenon_tid>(b));
      if (y.first_op == UINT32_MAX || x.first_op > y.last_op || y.first_op > x.last_op) continue;
      EXPECT_TRUE(x.offset + x.extent <= y.offset || y.offset + y.extent <= x.offset) << a << " and " << b;
    }
  }
  EXPECT_LT(program->activation_bytes(), sum + 60 * 256);
}

TEST_F(ProgramTest, MemoryIsReusedOnceATensorIsDead) {
  tenon_tid previous = temp(1024);
  op({{previous, TENON_WRITE}});
  for (int i = 0; i < 10; ++i) {
    const tenon_tid next = temp(1024);
    op({{previous, TENON_READ}, {next, TENON_WRITE}});
    previous = next;
  }
  EXPECT_EQ(recording_->finish({})->activation_bytes(), 2 * 4096u);
}

// Each op has its own zeroes, which it leaves as zeroes for the next step.
TEST_F(ProgramTest, ZeroedRegionsAreDisjoint) {
  struct Region {
    const std::byte *begin, *end;
  };
  const std::vector<uint64_t> bytes = {1, 0, 256, 257, 0, 8, 4000};
  const tenon_tid x = temp(64);
  const tenon_operand operand[] = {{x, TENON_READ}};
  for (const uint64_t n : bytes) {
    sdk::Recorder(recording_->recorder())
        .emit<&nothing>({.name = "op", .operands = operand, .chunks = {1}, .zeroed_bytes = n}, NoArgs{});
  }
  const auto program = recording_->finish({});
  std::vector<std::byte> zeroed(program->zeroed_bytes());
  program->bind_addresses(storages_, {.zeroed = zeroed.data()});
  std::vector<Region> regions;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto* begin = static_cast<const std::byte*>(program->launch(i).zeroed);
    EXPECT_EQ((begin - zeroed.data()) % 256, 0) << i;
    if (bytes[i] == 0) continue;
    for (const Region& other : regions) EXPECT_TRUE(begin >= other.end || begin + bytes[i] <= other.begin) << i;
    regions.push_back({begin, begin + bytes[i]});
    EXPECT_LE(regions.back().end, zeroed.data() + zeroed.size()) << i;
  }
}

// Ops run one at a time: they share scratch, as much as the greediest asks for.
TEST_F(ProgramTest, ScratchIsThatOfTheGreediestOp) {
  const tenon_tid x = temp(64);
  const tenon_operand operand[] = {{x, TENON_READ}};
  for (const uint64_t n : {100u, 3000u, 700u}) {
    sdk::Recorder(recording_->recorder())
        .emit<&nothing>(
            {.name = "op", .operands = operand, .chunks = {1}, .scratch_bytes = n, .thread_scratch_bytes = n / 2},
            NoArgs{});
  }
  const auto program = recording_->finish({});
  EXPECT_EQ(program->scratch_bytes(), 3072u);
  EXPECT_EQ(program->thread_scratch_bytes(), 1536u);
}

TEST_F(ProgramTest, OutputsStayUntilTheEnd) {
  const tenon_tid kept = temp(1024);
  op({{kept, TENON_WRITE}});
  const tenon_tid other = temp(1024);
  op({{other, TENON_WRITE}});
  const tenon_tid outputs[] = {kept};
  const auto program = recording_->finish(outputs);
  EXPECT_NE(program->tensor(kept).offset, program->tensor(other).offset);
}

TEST_F(ProgramTest, StableIsWhatNoEarlierOpWrote) {
  const tenon_tid a = temp(64), b = temp(64);
  const uint32_t weights = storages_.add("w", MemoryKind::kWeights, 1024);
  const uint32_t cache = storages_.add("kv", MemoryKind::kKvCache, 1024);
  const tenon_tid w = recording_->storage(weights, sdk::tensor(TENON_U8, {1024}));
  const tenon_tid kv = recording_->storage(cache, sdk::tensor(TENON_U8, {1024}));
  op({{w, TENON_READ}, {a, TENON_WRITE}});
  op({{kv, TENON_WRITE_NEW}});
  op({{w, TENON_READ}, {a, TENON_READ}, {kv, TENON_READ_OLD}, {kv, TENON_READ}, {b, TENON_WRITE}});
  const auto program = recording_->finish({});
  EXPECT_EQ(program->ops()[2].stable & 15u, 1u | 4u);
}

// Old cells are stable while only new ones are written; whoever writes all of it writes the old ones.
TEST_F(ProgramTest, OldCellsAreStableUntilAllIsWritten) {
  const uint32_t cache = storages_.add("kv", MemoryKind::kKvCache, 1024);
  const tenon_tid kv = recording_->storage(cache, sdk::tensor(TENON_U8, {1024}));
  op({{kv, TENON_WRITE_NEW}});
  op({{kv, TENON_READ_OLD}});
  op({{kv, TENON_WRITE}});
  op({{kv, TENON_READ_OLD}});
  const auto program = recording_->finish({});
  EXPECT_EQ(program->ops()[1].stable & 1u, 1u);
  EXPECT_EQ(program->ops()[3].stable & 1u, 0u);
}

constexpr uint32_t kSmall = TENON_BLOCKS_SMALL, kLarge = TENON_BLOCKS_LARGE, kEither = kSmall | kLarge,
                   kWhole = TENON_BLOCKS_WHOLE;

// This has the ops of a model as a GPU gets them, and the class of blocks that each is to have.
struct QueueOp {
  const char* name;
  uint32_t classes, expected;  // TENON_BLOCKS_*
  uint32_t flags = 0;
};
class BlockClasses : public ProgramTest {
 protected:
  std::unique_ptr<Program> record(const std::vector<QueueOp>& ops) {
    const tenon_tid x = temp(64);
    const tenon_operand operand{x, TENON_READ | TENON_WRITE};
    const tenon_recorder* rec = recording_->recorder();
    for (const QueueOp& o : ops) {
      auto op = sdk::abi_struct<tenon_op>();
      op.name = o.name;
      op.operand = &operand;
      op.n_operands = 1;
      op.blocks = o.classes;
      op.flags = o.flags;
      op.launch = [](void*, const void*, const tenon_launch*, tenon_reason*) -> tenon_status { return TENON_OK; };
      EXPECT_EQ(rec->emit(rec->ctx, &op), TENON_OK) << o.name;
    }
    auto program = recording_->finish({});
    program->bind_addresses(storages_, {}, nullptr, true);
    for (size_t i = 0; i < ops.size(); ++i) {
      EXPECT_EQ(program->launch(i).blocks, ops[i].expected) << "op " << i << ", " << ops[i].name;
    }
    return program;
  }
  static bool overlaps(const Program& program, size_t op) {
    return (program.launch(op).flags & TENON_LAUNCH_OVERLAP) != 0;
  }
};

TEST_F(BlockClasses, AlternateInEveryLayerOfADecodingStep) {
  std::vector<QueueOp> ops = {{"rows", 0, kSmall}};
  for (int layer = 0; layer < 3; ++layer) {
    ops.insert(ops.end(), {{"qkv", kEither, kSmall},
                           {"attention", 0, kSmall},
                           {"o", kEither, kLarge},
                           {"gate_up", kEither, kSmall},
                           {"down", kEither, kLarge}});
  }
  ops.insert(ops.end(), {{"gather", 0, kSmall}, {"head", kEither, kLarge}, {"top_k", 0, kSmall}});
  const auto program = record(ops);
  for (size_t i = 1; i < ops.size(); ++i) EXPECT_TRUE(overlaps(*program, i)) << ops[i].name;
}

TEST_F(BlockClasses, AProductOfPreparedRowsIsLargeEverywhere) {
  std::vector<QueueOp> ops;
  for (int layer = 0; layer < 2; ++layer) {
    for (const char* product : {"qkv", "o", "gate_up", "down"}) {
      ops.push_back({"prepare", kSmall, kSmall});
      ops.push_back({product, kLarge, kLarge});
    }
  }
  record(ops);
}

TEST_F(BlockClasses, AnOpThatMustBeLargeMakesTheOneBeforeItSmall) {
  const auto program = record({{"first", kEither, kSmall},
                               {"second", kEither, kSmall},
                               {"long row", kLarge, kLarge},
                               {"third", kEither, kSmall}});
  for (size_t i = 1; i < 4; ++i) EXPECT_TRUE(overlaps(*program, i)) << i;
}

TEST_F(BlockClasses, TwoThatMustBeLargeDoNotOverlap) {
  const auto program = record({{"first", kLarge, kLarge},
                               {"second", kLarge, kLarge},
                               {"library", 0, kSmall, TENON_OP_FOREIGN},
                               {"third", kEither, kLarge}});
  EXPECT_FALSE(overlaps(*program, 1));
  EXPECT_FALSE(overlaps(*program, 2));
  EXPECT_TRUE(overlaps(*program, 3));
}

TEST_F(BlockClasses, WholeOnesOverlapWithAll) {
  const auto program = record({{"first", kWhole, kWhole},
                               {"second", kWhole, kWhole},
                               {"long row", kLarge, kLarge},
                               {"third", kWhole, kWhole},
                               {"fourth", kEither, kSmall},
                               {"fifth", kEither, kLarge}});
  for (size_t i = 1; i < 6; ++i) EXPECT_TRUE(overlaps(*program, i)) << i;
}

TEST_F(ProgramTest, ASliceSharesItsParent) {
  const tenon_tid parent = temp(64);
  const tenon_tid part = recording_->slice(parent, sdk::tensor(TENON_F32, {16}), 32);
  op({{part, TENON_WRITE}});
  const auto program = recording_->finish({});
  EXPECT_EQ(program->tensor(part).offset, program->tensor(parent).offset + 32);
}

TEST_F(ProgramTest, RowsCostAsOftenAsTheyAre) {
  sdk::Recorder rec(recording_->recorder());
  const std::vector<tenon_operand> operands = {{temp(8), TENON_WRITE}};
  sdk::OpSpec spec{.name = "op", .operands = operands, .chunks = {1}};
  spec.cost = {.read = {5, 7, 11}, .written = {0, 2, 0}, .flops = {0, 3, 0}};
  recording_->repeat_rows(4);
  rec.emit<&nothing>(spec, NoArgs{});
  recording_->repeat_rows(1);
  rec.emit<&nothing>(spec, NoArgs{});
  recording_->pick_rows(true);
  rec.emit<&nothing>(spec, NoArgs{});
  const auto program = recording_->finish({});
  const StepLoad load{.rows = 20, .out_rows = 3, .context = 1};
  const ProgramOp &repeated = program->ops()[0], &plain = program->ops()[1], &picked = program->ops()[2];
  EXPECT_EQ(load.of(repeated, repeated.cost.read), 5 + 4 * 7 * 20 + 11);
  EXPECT_EQ(load.of(repeated, repeated.cost.written), 4 * 2 * 20);
  EXPECT_EQ(load.of(repeated, repeated.cost.flops), 4 * 3 * 20);
  EXPECT_EQ(load.of(plain, plain.cost.read), 5 + 7 * 20 + 11);
  EXPECT_EQ(load.of(picked, picked.cost.read), 5 + 7 * 3 + 11);
}

TEST_F(ProgramTest, MalformedRecordingsAreErrorsThatNameTheirPlace) {
  EXPECT_EQ(recording_->slice(temp(16), sdk::tensor(TENON_F32, {16}), 4), 0u);
  EXPECT_NE(recording_->error().find("layers.0.mlp (quantization.test): slices beyond the end"), std::string::npos)
      << recording_->error();
  try {
    recording_->finish({});
    FAIL() << "finished";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kPlugin);
  }
}

TEST_F(ProgramTest, WhatIsKeptIsSizedByTheLargestBounds) {
  tenon_bounds largest = bounds();
  largest.slots = 5;
  for (const uint32_t slots : {1U, 3U}) {
    tenon_bounds own = bounds();
    own.slots = slots;
    ProgramRecording recording(own, storages_, state_, &largest);
    recording.scope("sampler", "sampler.test", -1);
    sdk::Recorder rec(recording.recorder());
    EXPECT_EQ(rec.bounds().slots, slots);
    const tenon_tid id = rec.keep(sdk::tensor(TENON_U8, {rec.largest().slots, 8}), "by slot");
    EXPECT_EQ(recording.view(id).dim[0], 5);
    EXPECT_EQ(recording.error(), "");
  }
}

TEST_F(ProgramTest, OpsThatCannotRunAreRefused) {
  auto bad = sdk::abi_struct<tenon_op>();
  const tenon_operand dangling[] = {{99, TENON_READ}};
  bad.name = "bad";
  bad.phases = 1;
  const tenon_recorder* rec = recording_->recorder();
  EXPECT_EQ(rec->emit(rec->ctx, &bad), TENON_ERROR);  // nothing to run
  bad.part = [](void*, const void*, const tenon_part*) -> tenon_status { return TENON_OK; };
  EXPECT_EQ(rec->emit(rec->ctx, &bad), TENON_ERROR);  // a phase has no chunks
  bad.chunks[0] = 1;
  bad.operand = dangling;
  bad.n_operands = 1;
  EXPECT_EQ(rec->emit(rec->ctx, &bad), TENON_ERROR);
  bad.n_operands = 0;
  EXPECT_EQ(rec->emit(rec->ctx, &bad), TENON_OK);
}

TEST(TensorExtent, MalformedViewsHaveNone) {
  tenon_tensor t = sdk::tensor(TENON_F32, {4, 8});
  EXPECT_EQ(tensor_extent(t), 128u);
  t.rank = 7;
  EXPECT_EQ(tensor_extent(t), 0u);
  t = sdk::tensor(TENON_F32, {4, 8});
  t.dim[0] = t.stride[0] = int64_t{1} << 62;
  EXPECT_EQ(tensor_extent(t), 0u);
  t = sdk::tensor(TENON_F32, {4});
  t.format = 9999;
  EXPECT_EQ(tensor_extent(t), 0u);
  for (const int64_t n : {int64_t{0}, int64_t{-1}}) {
    t = sdk::tensor(TENON_F32, {4, 8});
    t.dim[0] = n;
    EXPECT_EQ(tensor_extent(t), 0u) << n;
    t.stride[0] = 0;
    EXPECT_EQ(tensor_extent(t), 0u) << n << " rows at one place";
    t = sdk::tensor(TENON_F32, {4, 8});
    t.dim[1] = n;
    EXPECT_EQ(tensor_extent(t), 0u) << n;
  }
}

struct CountArgs {
  int32_t fail_chunk;
};
void count(const CountArgs& a, const sdk::Part& p) {
  for (uint32_t c = p.begin(); c < p.end(); ++c) {
    if (a.fail_chunk == static_cast<int32_t>(c)) throw sdk::Failed("chunk " + std::to_string(c));
    p.ptr<int32_t>(0)[c] += 1 + static_cast<int32_t>(p.phase());
  }
}

class WalkerTest : public testing::TestWithParam<uint32_t> {};

TEST_P(WalkerTest, EveryChunkRunsOnceAPhaseOnAnyNumberOfThreads) {
  StorageTable storages;
  const uint32_t out = storages.add("out", MemoryKind::kState, 1000 * 4);
  std::vector<int32_t> values(1000);
  storages[out].address = values.data();
  ProgramRecording recording(bounds(), storages, {});
  recording.scope("a", "b.c", -1);
  const tenon_operand operand[] = {{recording.storage(out, sdk::tensor(TENON_I32, {1000})), TENON_WRITE}};
  for (int i = 0; i < 50; ++i) {
    sdk::Recorder(recording.recorder())
        .emit<&count>({.name = "count", .operands = operand, .chunks = {1000, 500}}, CountArgs{-1});
  }
  const auto program = recording.finish({});
  program->bind_addresses(storages, {});
  Walker walker(GetParam(), nullptr);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(walker.run(*program, {}).ok());
  EXPECT_EQ(std::count(values.begin(), values.begin() + 500, 20 * 50 * 3), 500);
  EXPECT_EQ(std::count(values.begin() + 500, values.end(), 20 * 50), 500);
}

TEST_P(WalkerTest, AFailureNamesTheOpAndEndsTheStep) {
  StorageTable storages;
  const uint32_t out = storages.add("out", MemoryKind::kState, 64 * 4);
  std::vector<int32_t> values(64);
  storages[out].address = values.data();
  ProgramRecording recording(bounds(), storages, {});
  recording.scope("layers.1.mlp", "quantization.bad", 1);
  const tenon_operand operand[] = {{recording.storage(out, sdk::tensor(TENON_I32, {64})), TENON_WRITE}};
  for (const int32_t fail : {-1, 17, -1}) {
    sdk::Recorder(recording.recorder())
        .emit<&count>({.name = "count", .operands = operand, .chunks = {64}}, CountArgs{fail});
  }
  const auto program = recording.finish({});
  program->bind_addresses(storages, {});
  Walker walker(GetParam(), nullptr);
  for (int i = 0; i < 50; ++i) {
    const Status status = walker.run(*program, {});
    EXPECT_EQ(status.message(), "layers.1.mlp: quantization.bad failed in count: chunk 17");
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, WalkerTest, testing::Values(1u, 2u, 3u, 8u));

}  // namespace
}  // namespace tenon
