// What a scheme on CUDA records for published checkpoints, on machines without a GPU, too: before kernels run it asks
// the device for nothing but its sizes, which are made up here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "conformance/published_forms.h"
#include "support/component.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/recorder.h"

namespace tenon::test {
namespace {

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

// This answers what a recorder is asked, and keeps what is emitted.
class StandInProgram {
 public:
  explicit StandInProgram(const tenon_bounds& bounds) {
    recorder_.ctx = this;
    recorder_.bounds = recorder_.largest = &bounds;
    recorder_.temp = [](void* p, const tenon_tensor* t) { return of(p).add(*t); };
    recorder_.keep = [](void* p, const tenon_tensor* t, const char*) { return of(p).add(*t); };
    recorder_.slice = [](void* p, tenon_tid, const tenon_tensor* t, uint64_t) { return of(p).add(*t); };
    recorder_.step = [](void* p, uint32_t) { return of(p).add(sdk::tensor(TENON_I32, {1})); };
    recorder_.describe = [](void* p, tenon_tid id, tenon_tensor* out) { *out = of(p).tensors_.at(id); };
    recorder_.emit = [](void* p, const tenon_op* op) {
      of(p).ops_.push_back({op->name, {op->operand, op->operand + op->n_operands}});
      return tenon_status{TENON_OK};
    };
  }
  StandInProgram(const StandInProgram&) = delete;
  StandInProgram& operator=(const StandInProgram&) = delete;

  tenon_tid add(const tenon_tensor& t) {
    tensors_.push_back(t);
    return static_cast<tenon_tid>(tensors_.size() - 1);
  }
  const tenon_recorder& recorder() const { return recorder_; }
  // Returns each op's name, and after it the `names` of those tensors that the op has.
  std::vector<std::string> ops(const std::vector<std::pair<tenon_tid, std::string>>& names) const {
    std::vector<std::string> all;
    for (const Op& op : ops_) {
      all.push_back(op.name);
      for (const auto& [id, name] : names) {
        const auto is = [&, own = id](const tenon_operand& o) { return o.tensor == own; };
        if (std::any_of(op.operands.begin(), op.operands.end(), is)) all.back() += " " + name;
      }
    }
    return all;
  }

 private:
  struct Op {
    std::string name;
    std::vector<tenon_operand> operands;
  };
  static StandInProgram& of(void* p) { return *static_cast<StandInProgram*>(p); }

  std::vector<tenon_tensor> tensors_{tenon_tensor{}};  // 0 is none
  std::vector<Op> ops_;
  tenon_recorder recorder_ = sdk::abi_struct<tenon_recorder>();
};

tenon_bounds bounds_of(uint32_t rows) {
  auto b = sdk::abi_struct<tenon_bounds>();
  b.rows = b.seqs = b.out_rows = rows;
  b.rows_per_seq = 1;
  b.kv_len = 4096;
  return b;
}

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
    const tenon_bounds bounds = bounds_of(rows);
    auto claim = sdk::abi_struct<tenon_claim>();
    check(table.claim(scheme.self(), &description.linear, &bounds, &claim, &why));
    const tenon_claim* claims[] = {&claim};
    void* site = nullptr;
    check(table.bind(scheme.self(), &description.linear, claims, 1, &site, &why));
    auto footprint = sdk::abi_struct<tenon_footprint>();
    check(table.footprint(scheme.self(), site, &footprint, &why));

    StandInProgram program(bounds);
    auto call = sdk::abi_struct<tenon_linear_call>();
    call.x = program.add(sdk::tensor(TENON_F32, {rows, k_}));
    call.y = program.add(sdk::tensor(TENON_F32, {rows, 96}));
    std::vector<tenon_tid> stores;
    for (uint32_t i = 0; i < footprint.n_stores; ++i) {
      stores.push_back(program.add(sdk::tensor(TENON_U8, {static_cast<int64_t>(footprint.store_bytes[i])})));
    }
    call.store = stores.data();
    norm_.t[0] = program.add(sdk::tensor(TENON_F32, {k_}));
    pro.n = claim.pro;
    call.pro = &pro;
    call.epi = &epi;
    call.claim = &claim;
    check(table.record(scheme.self(), site, &call, &program.recorder(), &why));
    table.unbind(scheme.self(), site);
    return program.ops({{norm_.t[0], "norm"}, {stores.back(), "store"}});
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
