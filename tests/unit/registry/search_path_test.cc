// These tests ask in which folders plugins are searched for, and in which order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "scratch.h"
#include "tenon/core/registry.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The test sets the variables that the search path follows; at the end they are as they were.
class SearchPath : public ::testing::Test {
 protected:
  void SetUp() override {
    for (auto& [name, value] : before_) {
      if (const char* v = std::getenv(name)) value = v;
      unsetenv(name);
    }
    setenv("HOME", "/home/somebody", 1);
  }
  void TearDown() override {
    for (const auto& [name, value] : before_) {
      if (value.empty()) {
        unsetenv(name);
      } else {
        setenv(name, value.c_str(), 1);
      }
    }
  }
  const fs::path installed_ = fs::canonical(TENON_BUILD_DIR) / "lib/tenon/plugins";

 private:
  std::vector<std::pair<const char*, std::string>> before_ = {
      {"TENON_PLUGIN_PATH", ""}, {"XDG_DATA_HOME", ""}, {"HOME", ""}};
};

TEST_F(SearchPath, IsOrderedFromTheClosestToTheInstall) {
  setenv("TENON_PLUGIN_PATH", "/a/b::/c", 1);
  EXPECT_THAT(plugin_search_path({"/x"}),
              ElementsAre("/x", "/a/b", "/c", "/home/somebody/.local/share/tenon/plugins", installed_));
  setenv("XDG_DATA_HOME", "/data", 1);
  EXPECT_THAT(plugin_search_path({}), ElementsAre("/a/b", "/c", "/data/tenon/plugins", installed_));
}

TEST_F(SearchPath, NeverHoldsTheWorkingDirectory) {
  setenv("XDG_DATA_HOME", "data", 1);
  EXPECT_THAT(plugin_search_path({}), ElementsAre("/home/somebody/.local/share/tenon/plugins", installed_));
  unsetenv("HOME");
  EXPECT_THAT(plugin_search_path({}), ElementsAre(installed_));
  for (const char* relative : {".", "/a:plugins"}) {
    setenv("TENON_PLUGIN_PATH", relative, 1);
    try {
      plugin_search_path({});
      ADD_FAILURE() << relative;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("is not an absolute path"));
    }
  }
}

}  // namespace
}  // namespace tenon
