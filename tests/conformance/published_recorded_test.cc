// These tests ask what a scheme on CUDA records for published checkpoints. They run on machines without a GPU, too: until
// kernels run, a scheme asks the device for nothing but its sizes, which are made up here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance/op_runner.h"
#include "conformance/published_forms.h"
#include "support/component.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/recorder.h"

namespace tenon::test {
namespace {

using conformance::OpRunner;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// This is a GPU of the Hopper generation for who only asks.
class StandInGpu {
 public:
  StandInGpu() {
    device_.arch = 90;
    device_.units = 132;
    device_.shared_per_unit = 228 << 10;
    device_.flags = 0;  // it does not walk
    env_.device = &device_;
  }
  const tenon_env& env() const { return env_; }

 private:
  tenon_device device_ = conformance::Device::cpu().table();
  tenon_env env_ = conformance::Device::cpu().env();
};

// This is a site of two matrices in a form, after RMSNorm.
class RecordedSite {
 public:
  RecordedSite(const std::string& label, int64_t k) : form_(form_of(label)), k_(k) {
    norm_.id = TENON_F_RMSNORM;
    norm_.f[0] = 1e-5F;
  }
  // Returns the ops of a product of so many rows, with whether they read the norm's weights and the last store.
  std::vector<std::string> ops(uint32_t rows) {
    const Instance scheme(plugins().load("quantization", form_.scheme, "cuda"), sdk::abi_struct<tenon_params>(),
                          gpu_.env());
    const auto& table = scheme.table<tenon_quantization>();
    conformance::LinearDescription description(conformance::published_site(form_, {64, 32}, k_));
    char text[256] = "";
    tenon_reason why{text, sizeof text};
    const auto check = [&](tenon_status status) {
      if (status != TENON_OK) throw std::runtime_error(text);
    };
    auto pro = sdk::abi_struct<tenon_chain>(), epi = pro;
    const tenon_fop* ops[] = {&norm_};
    pro.n = 1;
    pro.op = ops;
    description.linear.pro = &pro;
    description.linear.epi = &epi;
    const tenon_bounds bounds = OpRunner::bounds({.rows = rows, .seqs = rows, .slots = rows, .rows_per_seq = 1});
    auto claim = sdk::abi_struct<tenon_claim>();
    check(table.claim(scheme.self(), &description.linear, &bounds, &claim, &why));
    const tenon_claim* claims[] = {&claim};
    void* site = nullptr;
    check(table.bind(scheme.self(), &description.linear, claims, 1, &site, &why));
    auto footprint = sdk::abi_struct<tenon_footprint>();
    check(table.footprint(scheme.self(), site, &footprint, &why));

    OpRunner host(bounds);
    auto call = sdk::abi_struct<tenon_linear_call>();
    call.x = host.input(TENON_F32, {rows, k_}, nullptr);
    call.y = host.output(TENON_F32, {rows, 96});
    std::vector<tenon_tid> stores;
    for (uint32_t i = 0; i < footprint.n_stores; ++i) stores.push_back(host.store(footprint.store_bytes[i]));
    call.store = stores.data();
    norm_.t[0] = host.input(TENON_F32, {k_}, nullptr);
    pro.n = claim.pro;
    call.pro = &pro;
    call.epi = &epi;
    call.claim = &claim;
    check(table.record(scheme.self(), site, &call, host.recorder(), &why));
    std::vector<std::string> names;
    for (const ProgramOp& op : host.program().ops()) {
      const auto reads = [&](tenon_tid id) {
        return std::any_of(op.operands.begin(), op.operands.end(), [&](const auto& o) { return o.tensor == id; });
      };
      names.push_back(op.name + (reads(norm_.t[0]) ? " norm" : "") + (reads(stores.back()) ? " store" : ""));
    }
    table.unbind(scheme.self(), site);
    return names;
  }

 private:
  static const conformance::PublishedForm& form_of(const std::string& label) {
    const auto& all = conformance::published_forms();
    return *std::find_if(all.begin(), all.end(), [&](const auto& form) { return form.label == label; });
  }

  StandInGpu gpu_;
  const conformance::PublishedForm& form_;
  int64_t k_;
  tenon_fop norm_ = sdk::abi_struct<tenon_fop>();
};

class RecordedForAGpu : public testing::Test {
 protected:
  void SetUp() override {
    try {
      plugins().load("quantization", "gptq", "cuda");
    } catch (const std::exception& e) {
      GTEST_SKIP() << e.what();
    }
  }
};

TEST_F(RecordedForAGpu, ProductsOfFewRowsTakeActOrderAndTheNormBeforeIt) {
  RecordedSite site("gptq_4_32_act", 12544);
  EXPECT_THAT(site.ops(1), ElementsAre("gemv norm store"));
  for (const uint32_t rows : {2U, 4U, 8U}) {
    EXPECT_THAT(site.ops(rows), ElementsAre("prepare norm store", "gemv norm store")) << rows;
  }
}

TEST_F(RecordedForAGpu, AnOpGathersMoreRowsAndWiderOnesAfterTheirNorm) {
  const auto expect_gathered = [](std::vector<std::string> ops) {
    ASSERT_FALSE(ops.empty());
    EXPECT_EQ(ops[0], "gather store");
    ops.erase(ops.begin());
    EXPECT_THAT(ops, Each(Not(testing::AnyOf(HasSubstr("norm"), HasSubstr("store")))));
  };
  RecordedSite site("gptq_4_32_act", 1152), wide("gptq_4_32_act", 16512);
  for (const uint32_t rows : {9U, 40U, 2048U}) {
    SCOPED_TRACE(rows);
    expect_gathered(site.ops(rows));
  }
  for (const uint32_t rows : {1U, 8U, 40U}) {
    SCOPED_TRACE(rows);
    expect_gathered(wide.ops(rows));
  }
}

TEST_F(RecordedForAGpu, ColumnsInOrderAreNotGathered) {
  RecordedSite site("gptq_4_128", 1152);
  EXPECT_THAT(site.ops(1), ElementsAre("gemv norm store"));
  for (const uint32_t rows : {8U, 40U, 2048U}) EXPECT_THAT(site.ops(rows), Each(Not(HasSubstr("gather")))) << rows;
}

}  // namespace
}  // namespace tenon::test
