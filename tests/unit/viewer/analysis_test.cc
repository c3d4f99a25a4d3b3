// These tests look at what the views say of a trace of known content.
#include "model/analysis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "made_trace.h"
#include "model/flame.h"
#include "model/reports.h"

namespace tenon::view {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

int64_t of(const Step& step, Work work) {
  return step.by_work[static_cast<size_t>(work)];
}

TEST(ViewAnalysis, StepsSplitByTheirWork) {
  const TraceFile file = made_trace();
  const Analysis a = analyse(file);
  EXPECT_EQ(a.source, OpSource::kCpuOps);
  EXPECT_EQ(a.peak_gbps, 4);
  ASSERT_EQ(a.steps.size(), 9U);
  EXPECT_EQ(a.steps[0].phase, "prefill");
  EXPECT_EQ(of(a.steps[0], Work::kGemm), 900'000);
  EXPECT_EQ(of(a.steps[0], Work::kGap), 0);
  EXPECT_EQ(of(a.steps[0], Work::kHost), 100'000);
  EXPECT_EQ(a.steps[0].between_ns, 10'000);
  const Step& step = a.steps[1];
  EXPECT_EQ(step.number, 1);
  EXPECT_EQ(of(step, Work::kAttention), 20'000);
  EXPECT_EQ(of(step, Work::kGemv), 40'000);
  EXPECT_EQ(of(step, Work::kSampling), 5'000);
  EXPECT_EQ(of(step, Work::kGap), 30'000);
  EXPECT_EQ(of(step, Work::kHost), 5'000);
  EXPECT_EQ(step.bytes, 2 * 41'000 + 100);
  EXPECT_EQ(step.end_op - step.first_op, 5U) << "the second thread's share of the same operations does not count";
  EXPECT_EQ(steps_of(a, Phase::kPrefill).size(), 1U);
  EXPECT_EQ(usual_phase(a), Phase::kDecode);
}

TEST(ViewAnalysis, KernelsThatOverlapAddUpToTheirStep) {
  std::string text = '[' + event({"ProfilerStep#0", "user_annotation", 7, 0, 50}) +
                     event({"ProfilerStep#1", "user_annotation", 7, 100, 50});
  text += event({"layers.0.a/gemv", "kernel", 1007, 10, 40}) + event({"layers.0.b/gemv", "kernel", 600001, 30, 40}) +
          event({"layers.1.a/gemv", "kernel", 1007, 80, 10}) + event({"layers.1.b/gemv", "kernel", 1007, 120, 10});
  text.resize(text.size() - 2);
  const TraceFile file = profiler::read_trace_bytes(text + ']', "kernels.json");
  const Analysis a = analyse(file);
  EXPECT_EQ(a.source, OpSource::kKernels);
  std::vector<int64_t> added;
  for (const OpEvent& op : a.ops) added.push_back(op.added_ns / 1000);
  EXPECT_THAT(added, ElementsAre(40, 20, 10, 10));
  EXPECT_EQ(a.steps[0].duration_ns, 90'000);
  EXPECT_EQ(of(a.steps[0], Work::kGap), 10'000);
  EXPECT_EQ(of(a.steps[0], Work::kHost), 10'000);
  EXPECT_EQ(a.steps[0].between_ns, 10'000);
  EXPECT_EQ(a.steps[1].duration_ns, 30'000);
  EXPECT_EQ(a.ops[2].layer, 1);
  EXPECT_EQ(a.paths.size(), 2U);
}

TEST(ViewAnalysis, KernelsBelongToTheStepTheyName) {
  std::string text = '[' + event({"ProfilerStep#4", "user_annotation", 7, 0, 20}) +
                     event({"ProfilerStep#5", "user_annotation", 7, 20, 20}) +
                     event({"ProfilerStep#6", "user_annotation", 7, 40, 20});
  text += event({"a/gemv", "kernel", 1007, 10, 30, R"("step":4)"}) +
          event({"a/gemv", "kernel", 1007, 45, 30, R"("step":5)"});
  text.resize(text.size() - 2);
  const TraceFile file = profiler::read_trace_bytes(text + ']', "kernels.json");
  const Analysis a = analyse(file);
  EXPECT_EQ(a.ops[1].step, 1U);
  EXPECT_EQ(a.steps[1].duration_ns, 35'000);
  EXPECT_EQ(of(a.steps[1], Work::kHost), 5'000);
  EXPECT_EQ(of(a.steps[2], Work::kGap), 0) << "nothing of it was recorded";
  EXPECT_EQ(steps_of(a, Phase::kAll).size(), 2U);
}

// PyTorch's profiler writes such files: epoch times, texts in place of process
// ids, steps on the CPU and again on the GPU.
TEST(ViewAnalysis, FilesOfKineto) {
  const TraceFile file = profiler::read_trace(TENON_TEST_DATA "/trace/kineto.json");
  EXPECT_TRUE(file.notices.empty());
  const Analysis a = analyse(file);
  EXPECT_EQ(a.source, OpSource::kKernels);
  ASSERT_EQ(a.steps.size(), 1U);
  EXPECT_EQ(of(a.steps[0], Work::kGemm), 10'000);
  ASSERT_EQ(file.flows.size(), 1U);
  EXPECT_EQ(file.name(file.slices[file.flows[0].from]), "cudaLaunchKernel");
  EXPECT_EQ(file.category(file.slices[file.flows[0].to]), "kernel");
}

TEST(ViewAnalysis, NestedOperatorsCountTheirOwnTime) {
  std::string text = '[' + event({"aten::linear", "cpu_op", 7, 0, 100}) + event({"aten::addmm", "cpu_op", 7, 10, 60});
  text.resize(text.size() - 2);
  const TraceFile file = profiler::read_trace_bytes(text + ']', "nested.json");
  const Table table = op_table(file, analyse(file), Phase::kAll, std::nullopt);
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(table.rows[0].cells[0].text, "aten::addmm");
  EXPECT_EQ(table.rows[0].cells[4].key, 60);
  EXPECT_EQ(table.rows[1].cells[4].key, 40);
  EXPECT_EQ(table.rows[0].cells[8].text, "-");
}

TEST(ViewReports, OperationsWithBandwidthAndShares) {
  const TraceFile file = made_trace();
  const Table table = op_table(file, analyse(file), Phase::kDecode, 4.0);
  ASSERT_EQ(table.rows.size(), 3U);
  const auto& gemv = table.rows[0].cells;
  EXPECT_EQ(gemv[0].text, "layers.*.mlp/gemv");
  EXPECT_EQ(gemv[3].key, 16);
  EXPECT_EQ(gemv[4].key, 320);
  EXPECT_EQ(gemv[5].key, 20);
  EXPECT_EQ(gemv[8].key, 2);
  EXPECT_EQ(gemv[9].key, 50);
  EXPECT_NEAR(gemv[10].key, 100 * 320.0 / 850, 1e-9);
  EXPECT_EQ(to_text(table).substr(0, 9), "operation");
}

TEST(ViewReports, TheSlowestStepComesFirst) {
  const TraceFile file = made_trace();
  const Table table = step_table(analyse(file), Phase::kAll, true);
  EXPECT_EQ(table.rows[0].cells[0].text, "0");
  EXPECT_EQ(table.rows[1].cells[0].text, "3");
}

TEST(ViewReports, TokensShowWhatDominatedAndWhatGrew) {
  const TraceFile file = made_trace();
  const std::vector<TokenCell> cells = token_strip(analyse(file));
  ASSERT_EQ(cells.size(), 9U);
  EXPECT_EQ(cells[0].text, "A");
  EXPECT_EQ(cells[0].dominant, Work::kGemm);
  EXPECT_EQ(cells[3].text, " w3");
  EXPECT_EQ(cells[3].dominant, Work::kSampling);
  EXPECT_EQ(cells[3].grew, Work::kSampling);
  EXPECT_EQ(cells[3].over_median, 1.5);
  EXPECT_EQ(cells[4].dominant, Work::kGemv);
}

TEST(ViewReports, StepsOfSeveralSequencesAndDraftsGiveSeveralTokens) {
  const std::string decode = R"("phase":"decode","n_ctx_tok":0,)";
  std::string text =
      '[' + event({"ProfilerStep#0", "user_annotation", 7, 0, 9, R"("phase":"prefill","n_ctx_tok":512,"tokens":"")"}) +
      event({"ProfilerStep#1", "user_annotation", 7, 10, 9, R"("phase":"prefill","n_ctx_tok":100,"tokens":"a")"}) +
      event({"ProfilerStep#2", "user_annotation", 7, 20, 9,
             decode + R"("n_gen_tok":5,"n_gen_req":1,"drafted":4,"accepted":3,"tokens":"b c d e")"}) +
      event({"ProfilerStep#3", "user_annotation", 7, 30, 9,
             decode + R"("n_gen_tok":3,"n_gen_req":3,"tokens":"x | y | z")"});
  text.resize(text.size() - 2);
  const TraceFile file = profiler::read_trace_bytes(text + ']', "steps.json");
  std::vector<int64_t> tokens;
  for (const Step& step : analyse(file).steps) tokens.push_back(step.n_tokens);
  EXPECT_THAT(tokens, ElementsAre(0, 1, 4, 3));
  EXPECT_EQ(token_strip(analyse(file)).size(), 3U);
}

TEST(ViewReports, LayersByOperations) {
  const TraceFile file = made_trace();
  const HeatMap map = heat_map(analyse(file), Phase::kDecode);
  EXPECT_EQ(map.n_layers, 2);
  EXPECT_THAT(map.columns, ElementsAre("layers.*.attention/attention", "layers.*.mlp/gemv", "sampler/choose"));
  EXPECT_EQ(map.at(1, 1).ns, 8 * 20'000);
  EXPECT_EQ(map.at(1, 1).gbps(), 2);
  EXPECT_EQ(map.at(2, 2).ns, 8 * 5'000 + 50'000);
  EXPECT_EQ(map.total_ns, 850'000);
}

TEST(ViewReports, TheWaterfallAddsUpToTheStep) {
  const TraceFile file = made_trace();
  const Analysis a = analyse(file);
  const Waterfall w = waterfall(a, Phase::kDecode, 4.0);
  EXPECT_EQ(w.n_steps, 8U);
  EXPECT_EQ(w.parts[0].name, "weights");
  EXPECT_EQ(w.parts[0].ns, 40'000);
  EXPECT_EQ(w.parts[0].limit_ns, 80'000 / 4.0);
  int64_t sum = 0;
  for (const auto& part : w.parts) sum += part.ns;
  EXPECT_EQ(sum, w.step_ns);
  EXPECT_EQ(w.step_ns, 850'000 / 8 + 7 * 10'000 / 8);
  EXPECT_EQ(waterfall(a, Phase::kDecode, std::nullopt).limit_ns, 0);
}

TEST(ViewReports, WhatIsMissingIsSaid) {
  const TraceFile full = made_trace(
      2, 20, R"("read_bandwidth_gbps":4,"pipeline_toml":"[model]","negotiation":"n","memory_plan":"m","model":"x")");
  const PipelineInfo all = pipeline_info(full, analyse(full));
  EXPECT_TRUE(all.missing.empty());
  EXPECT_EQ(all.texts[0].text, "[model]");
  EXPECT_EQ(all.facts.rows[1].cells[1].text, "x");
  const TraceFile bare =
      profiler::read_trace_bytes(R"([{"ph":"X","pid":1,"tid":1,"ts":0,"dur":1,"name":"a"}])", "bare.json");
  const PipelineInfo none = pipeline_info(bare, analyse(bare));
  EXPECT_EQ(none.missing.size(), 8U);
  EXPECT_THAT(none.missing, Contains(HasSubstr("no slices ProfilerStep#N")));
}

TEST(ViewFlame, JoinsByNamesAndPutsTheLongestFirst) {
  const TraceFile file = made_trace();
  const Flame flame = flame_of(file, {0});
  ASSERT_EQ(flame.nodes[0].children.size(), 1U);
  const Flame::Node& steps = flame.nodes[flame.nodes[0].children[0]];
  EXPECT_EQ(steps.name, "ProfilerStep#*");
  EXPECT_EQ(steps.count, 9U);
  EXPECT_EQ(steps.ns, 1'850'000);
  std::vector<std::string> names;
  for (const uint32_t child : steps.children) names.push_back(flame.nodes[child].name);
  EXPECT_THAT(names, ElementsAre("layers.*.mlp/gemm", "layers.*.mlp", "layers.*.attention", "sampler"));
}

TEST(ViewWork, IsToldByNames) {
  EXPECT_EQ(work_of("quantization.gguf", "gemv", "layers.0.attention.qkv"), Work::kGemv);
  EXPECT_EQ(work_of("device.cpu", "rope", "layers.0.attention"), Work::kOther);
  EXPECT_EQ(work_of("kv_cache.static", "append", "layers.0.attention"), Work::kKvCache);
  EXPECT_EQ(work_of("quantization.gguf", "rows", "embedding"), Work::kEmbedding);
  EXPECT_EQ(work_of("device.cpu", "rms_norm", "final_norm"), Work::kNorm);
  EXPECT_EQ(work_of("", "", "ampere_bf16_s16816gemm_bf16_128x64"), Work::kGemm);
  EXPECT_EQ(work_of("", "", "void at::native::elementwise_kernel"), Work::kOther);
  EXPECT_EQ(layer_of("layers.12.mlp"), 12);
  EXPECT_EQ(layer_of("lm_head"), -1);
  EXPECT_EQ(without_numbers("layer 7"), "layer *");
}

}  // namespace
}  // namespace tenon::view
