// This tests the limits of control groups, in made-up trees of /proc and /sys.
#include "core/src/cpu/memory_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tenon/core/engine.h"
#include "tenon/core/pipeline.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Limits : public testing::Test {
 protected:
  Limits() { fs::create_directories(root_ / "proc/self"); }
  ~Limits() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  // Makes a hierarchy of version 2, of which `mounted` is at /sys/fs/cgroup, and the process's group in it.
  void version_2(const std::string& group, const std::string& mounted = "/") const {
    put("proc/self/cgroup", "0::" + group + "\n");
    put("proc/self/mountinfo",
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "30 22 0:26 " +
            mounted + " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  void expect(uint64_t bytes, const std::string& file) const {
    const MemoryLimit limit = memory_limit(root_);
    EXPECT_EQ(limit.bytes, bytes);
    EXPECT_EQ(limit.file, file.empty() ? "" : (root_ / file).string());
  }

  const fs::path root_ = fs::path(testing::TempDir()) / ("limits-" + std::to_string(getpid()));
};

TEST_F(Limits, NoGroupsNoLimit) {
  expect(UINT64_MAX, "");
  version_2("/");
  expect(UINT64_MAX, "");
}

TEST_F(Limits, TheLeastOfAllGroupsAboveCounts) {
  version_2("/system.slice/a b/job");
  put("sys/fs/cgroup/system.slice/memory.max", "3000000\n");
  put("sys/fs/cgroup/system.slice/a b/memory.max", "2000000\n");
  put("sys/fs/cgroup/system.slice/a b/job/memory.max", "max\n");
  put("sys/fs/cgroup/system.slice/other/memory.max", "1\n");
  expect(2000000, "sys/fs/cgroup/system.slice/a b/memory.max");
  put("sys/fs/cgroup/system.slice/a b/job/memory.max", "1000000\n");
  expect(1000000, "sys/fs/cgroup/system.slice/a b/job/memory.max");
  put("sys/fs/cgroup/system.slice/memory.max", "500000\n");
  expect(500000, "sys/fs/cgroup/system.slice/memory.max");
}

// In a container the mount shows the container's group as the root, while /proc may name the host's path, or one that
// is outside of what is seen.
TEST_F(Limits, AContainerSeesItsOwnGroupAtTheMountPoint) {
  put("sys/fs/cgroup/memory.max", "700000\n");
  put("sys/fs/cgroup/inner/memory.max", "600000\n");
  version_2("/docker/abc", "/docker/abc");
  expect(700000, "sys/fs/cgroup/memory.max");
  version_2("/docker/abc/inner", "/docker/abc");
  expect(600000, "sys/fs/cgroup/inner/memory.max");
  version_2("/../other", "/");
  expect(700000, "sys/fs/cgroup/memory.max");
  version_2("/elsewhere", "/docker/abc");
  expect(700000, "sys/fs/cgroup/memory.max");
}

TEST_F(Limits, OfVersion1Too) {
  put("proc/self/cgroup", "7:cpu,cpuacct:/x\n5:memory:/user/job\n0::/\n");
  put("proc/self/mountinfo",
      "31 22 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
      "32 22 0:28 / /sys/fs/cgroup/mem\\040ory rw - cgroup cgroup rw,memory\n"
      "33 22 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  put("sys/fs/cgroup/cpu/x/memory.limit_in_bytes", "1\n");
  put("sys/fs/cgroup/mem ory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/mem ory/user/job/memory.limit_in_bytes", "9223372036854771712\n");
  expect(UINT64_MAX, "");
  put("sys/fs/cgroup/mem ory/user/memory.limit_in_bytes", "4096\n");
  expect(4096, "sys/fs/cgroup/mem ory/user/memory.limit_in_bytes");
  put("sys/fs/cgroup/unified/memory.max", "100\n");
  expect(100, "sys/fs/cgroup/unified/memory.max");
}

TEST_F(Limits, WhatIsBrokenLimitsNothing) {
  put("proc/self/cgroup", "\n0:\nnonsense\n");
  put("proc/self/mountinfo", "\n1 2 3\n30 22 0:26 / /sys/fs/cgroup rw - cgroup2\n- - - - - - - cgroup2 x y\n");
  put("sys/fs/cgroup/memory.max", "-5 or so\n");
  expect(UINT64_MAX, "");
}

TEST_F(Limits, APlanThatDoesNotFitNamesTheFile) {
  const auto registry = make_registry({});
  RegistrySchemas schemas(*registry);
  const std::string model = std::string(TENON_SOURCE_DIR) + "/tests/golden/data/tiny-gqa-untied";
  const PipelineConfig config = resolve(load_config(model, {"kv_cache.capacity=256"}), schemas);
  const auto weights = open_weights(model);
  version_2("/job");
  put("sys/fs/cgroup/job/memory.max", "100000\n");
  PipelineOptions options;
  options.system_root = root_;
  const auto pipeline = Pipeline::build(config, *registry, *weights, options);
  const std::string file = (root_ / "sys/fs/cgroup/job/memory.max").string();
  EXPECT_EQ(pipeline->plan().device_memory, 100000u);
  EXPECT_THAT(to_string(pipeline->plan()), HasSubstr(file));
  try {
    pipeline->load();
    ADD_FAILURE() << "loaded";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kMemory);
    EXPECT_THAT(e.what(), HasSubstr("device cpu has 100 kB (the limit that " + file + " states)"));
  }
  EXPECT_EQ(pipeline->high_water(), 0u);
}

}  // namespace
}  // namespace tenon
