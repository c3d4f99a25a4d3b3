// `tenon generate --trace` runs where another profiler has CUPTI.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "support/pipelines.h"
#include "tenon/profiler/kernel_recorder.h"
#include "tenon/profiler/trace_check.h"
#include "tenon/profiler/trace_file.h"

namespace tenon::test {
namespace {

using testing::HasSubstr;

std::string cupti_in_use() {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        const std::filesystem::path library = info->dlpi_name;
        if (!library.filename().string().starts_with("libcupti.so")) return 0;
        *static_cast<std::string*>(out) = library;
        return 1;
      },
      &path);
  return path;
}

TEST(HeldCupti, IsNamedAtTheEndAndInTheTrace) {
  if (const std::string missing = no_gpu(); !missing.empty()) GTEST_SKIP() << missing;
  try {
    const profiler::KernelRecorder recorder;  // finds CUPTI
  } catch (const Error& e) {
    GTEST_SKIP() << e.what();
  }
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("held-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  for (const char* steps : {"keep_steps=0", "keep_steps=2"}) {
    SCOPED_TRACE(steps);
    const std::string trace = folder / "t.json", said = folder / "said";
    const std::string line = "TENON_HELD_CUPTI='" + cupti_in_use() + "' LD_PRELOAD='" +
                             (build() / "lib/libcupti_holder.so").string() + "' '" + (build() / "bin/tenon").string() +
                             "' generate synthetic:stories15m --plugin-dir '" + plugins() +
                             "' --set device.use=cuda --set kv_cache.capacity=128 --prompt Once --max-new-tokens 20 "
                             "--ignore-end --force --trace '" +
                             trace + "' --set trace." + steps + " >/dev/null 2>'" + said + "'";
    const int status = std::system(line.c_str());
    std::ifstream file(said);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    EXPECT_EQ(status, 0) << text;
    ASSERT_THAT(text, HasSubstr("CUPTI is held"));
    EXPECT_THAT(text, HasSubstr("the trace: no kernels: CUPTI: subscribing: "));
    EXPECT_THAT(text, HasSubstr("another profiler or debugger"));
    const profiler::TraceFile written = profiler::read_trace(trace);
    EXPECT_THAT(std::string(written.meta("problem").value_or("")), HasSubstr("no kernels: CUPTI: subscribing: "));
    const profiler::CheckReport report = profiler::check_trace(trace);
    ASSERT_EQ(report.findings.size(), 1u);
    EXPECT_EQ(report.findings[0].rule, "no-kernels");
    EXPECT_THAT(report.findings[0].found, HasSubstr("another profiler or debugger"));
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tenon::test
