// The pipelines and the reference that ship are held against the components of this build.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tenon/core/config.h"
#include "tenon/core/engine.h"
#include "tenon/core/registry.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;

// Leaves out what the user of this machine has installed.
std::unique_ptr<Registry> built_components() {
  for (const char* name : {"TENON_PLUGIN_PATH", "XDG_DATA_HOME", "HOME"}) unsetenv(name);
  return make_registry({fs::path(TENON_BUILD_DIR) / "lib/tenon/plugins"});
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class ShippedPipeline : public testing::TestWithParam<std::string> {};

TEST_P(ShippedPipeline, NamesPartsThatAreThere) {
  const auto registry = built_components();
  RegistrySchemas schemas(*registry);
  const std::string file = (fs::path(TENON_SOURCE_DIR) / "configs" / GetParam()).string();
  const bool on_a_gpu = read(file).find("\nuse = \"cuda\"") != std::string::npos;
  if (on_a_gpu && registry->names("device", "cuda").empty()) GTEST_SKIP() << "built without CUDA";
  PipelineConfig config;
  try {
    config = resolve(load_config(file, {}), schemas, ModelPath::kOptional);
  } catch (const Error& e) {
    FAIL() << e.what();
  }
  const PipelineConfig again = resolve(parse_config({{"printed", to_toml(config)}}, {}), schemas, ModelPath::kOptional);
  EXPECT_EQ(to_toml(again), to_toml(config));
}

std::vector<std::string> shipped() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fs::path(TENON_SOURCE_DIR) / "configs")) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().filename());
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Configs, ShippedPipeline, testing::ValuesIn(shipped()),
                         [](const auto& name) { return fs::path(name.param).stem().string(); });

// Returns what the reference says in a build without the CUDA components.
std::string without_cuda(std::string text) {
  const size_t section = text.find("### device `cuda`");
  if (section != std::string::npos) text.erase(section, text.find("\n## ", section) + 1 - section);
  for (size_t at = 0; (at = text.find(", cuda.", at)) != std::string::npos;) text.erase(at, 6);
  return text;
}

// TENON_WRITE_REFERENCE=1 writes it instead.
TEST(PipelineReference, IsUpToDate) {
  const auto registry = built_components();
  const std::string generated = pipeline_reference_markdown(*registry);
  const fs::path path = fs::path(TENON_SOURCE_DIR) / "docs/pipeline-toml.md";
  if (std::getenv("TENON_WRITE_REFERENCE") != nullptr) std::ofstream(path, std::ios::binary) << generated;
  const bool cuda = !registry->names("device", "cuda").empty();
  EXPECT_EQ(cuda ? read(path) : without_cuda(read(path)), generated)
      << "run this test with TENON_WRITE_REFERENCE=1 to write " << path;
}

}  // namespace
}  // namespace tenon
