// device.cpu says which instruction sets the processor has and a configuration allows, and gives memory in pages of its
// own. It has no queues: core's walker runs its programs.
#include "cpu_device.h"

#include <cpuid.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "tenon/sdk/component.h"
#include "thread_team.h"

namespace tenon {
namespace {

// This is asked of the processor itself, since clang 16 has no name for it.
bool has_avx_vnni() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
}

// device.isa may name these sets, each with what it lets kernels use.
struct NamedIsa {
  const char *name, *called;
  uint64_t has, allows;
};
constexpr uint64_t kAvxVnni = TENON_ISA_AVX2 | TENON_ISA_AVX_VNNI;
constexpr NamedIsa kNamed[] = {{"auto", "", 0, ~uint64_t{0}},
                               {"baseline", "", 0, 0},
                               {"avx2", "AVX2", TENON_ISA_AVX2, TENON_ISA_AVX2},
                               {"avx-vnni", "AVX-VNNI", kAvxVnni, kAvxVnni},
                               {"avx512", "AVX-512", TENON_ISA_AVX512, ~uint64_t{0}}};

uint64_t allowed_isa(const std::string& name) {
  const auto* const named = std::find_if(std::begin(kNamed), std::end(kNamed), [&](auto& n) { return n.name == name; });
  const uint64_t machine = machine_isa();
  if ((machine & named->has) != named->has) {
    throw sdk::Refused(std::string("this machine has no ") + named->called);
  }
  return machine & named->allows;
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

class CpuDevice : public sdk::ComponentDefaults {
 public:
  static constexpr const char* kKind = "device";
  static constexpr const char* kInterface = "device/1";
  static constexpr const char* kName = "cpu";
  static constexpr const char* kDoc = "The host's memory and cores.";
  static constexpr auto kParams = sdk::params(
      sdk::integer(
          {.name = "threads", .doc = "Threads that compute; 0 takes every usable core.", .min = 0, .max = 1024}),
      sdk::text({.name = "isa",
                 .doc = "Instructions that kernels may use; auto takes all that the machine has.",
                 .value = "auto",
                 .choices = "auto|baseline|avx2|avx-vnni|avx512"}));

  CpuDevice(const sdk::Params& params, const sdk::Env&) : name_(processor_name()) {
    table_.self = this;
    table_.kind = "cpu";
    table_.name = name_.c_str();
    table_.units = params.integer("threads") > 0 ? static_cast<uint32_t>(params.integer("threads")) : usable_cores();
    table_.flags = TENON_DEVICE_WALKS | TENON_DEVICE_ZEROES;
    table_.memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
    table_.isa = allowed_isa(params.text("isa"));
    table_.alloc = &alloc;
    table_.release = &release;
    table_.copy = &copy;
    table_.record_step_op = &record_step_op;
    table_.record_draft_pass = &record_draft_pass;
  }

  const tenon_device* instance_table() const { return &table_; }

 private:
  // The memory has its own pages: zero, and resident only once they are touched, so that a cache costs what is in it.
  static tenon_status alloc(void*, uint32_t, uint64_t bytes, void** out, tenon_reason* why) noexcept {
    return sdk::guard(why, [&] {
      void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (p == MAP_FAILED) throw sdk::NoSpace("the system has no " + std::to_string(bytes) + " bytes of memory left");
      *out = p;
    });
  }
  static void release(void*, uint32_t, void* p, uint64_t bytes) noexcept { munmap(p, bytes); }
  static tenon_status copy(void*, void*, void* dst, const void* src, uint64_t bytes, tenon_reason*) noexcept {
    if (src != nullptr) {
      std::memcpy(dst, src, bytes);
    } else {
      std::memset(dst, 0, bytes);
    }
    return TENON_OK;
  }
  static tenon_status record_step_op(void*, const tenon_fop* op, tenon_tid x, tenon_tid y, const tenon_recorder* rec,
                                     tenon_reason* why) noexcept {
    return record_cpu_op(sdk::read_longer<sdk::VerifyOp>(op), x, y, rec, why);
  }
  static tenon_status record_draft_pass(void*, const tenon_draft_pass* pass, const tenon_recorder* rec,
                                        tenon_reason* why) noexcept {
    return record_cpu_draft_pass(sdk::read_longer<sdk::DraftPass>(pass), rec, why);
  }

  std::string name_;
  tenon_device table_ = sdk::abi_struct<tenon_device>();
};

constexpr tenon_component kComponent = sdk::detail::component<CpuDevice>();

}  // namespace

uint64_t machine_isa() {
  uint64_t isa = 0;
  __builtin_cpu_init();
  // F16C is older than AVX2, and clang has no name for it here.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2")) return isa;
  isa |= TENON_ISA_AVX2;
  if (has_avx_vnni()) isa |= TENON_ISA_AVX_VNNI;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    isa |= TENON_ISA_AVX512;
    if (__builtin_cpu_supports("avx512vnni")) isa |= TENON_ISA_AVX512_VNNI;
    if (__builtin_cpu_supports("avx512bf16")) isa |= TENON_ISA_AVX512_BF16;
    if (__builtin_cpu_supports("avx512vbmi")) isa |= TENON_ISA_AVX512_VBMI;
  }
  return isa;
}

void register_cpu_device(Registry& registry) {
  registry.add_builtin({.kind = kComponent.kind,
                        .name = kComponent.name,
                        .device = kComponent.device,
                        .doc = kComponent.doc,
                        .schema = kComponent.schema,
                        .component = &kComponent,
                        .implementation = nullptr});
}

}  // namespace tenon
