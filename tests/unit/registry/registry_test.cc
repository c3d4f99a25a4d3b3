// These tests look for components in folders and libraries: precedence, refusals, permissions, and what is said of
// each.
#include "tenon/core/registry.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "scratch.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
using test::bad_plugin;
using test::Scratch;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;

template <class F>
std::string error_of(F&& f) {
  try {
    f();
    return "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kPlugin);
    return e.what();
  }
}

std::string error_of_library(const fs::path& library) {
  Registry registry;
  return error_of([&] {
    registry.add_library(library);
    for (const ComponentInfo& c : registry.components()) registry.load(c.kind, c.name, c.device);
  });
}

void expect_that_the_process_goes_on() {
  Registry registry;
  registry.add_library(bad_plugin("good"));
  EXPECT_EQ(registry.load("sampler", "good", "cpu").doc, "The largest logit.");
}

TEST(Registry, FindsByNameOnTheSearchPath) {
  const Scratch root;
  root.copy(bad_plugin("good"), "sampler/good.cpu.so");
  root.copy(bad_plugin("throws_attention"), "throws.cpu.so");
  root.copy(bad_plugin("good"), "far/too/deep.cpu.so");
  root.write("sampler/README.md", std::string("no library"));
  Registry registry;
  registry.add_root(root.path() / "not there");
  registry.add_root(root.path());
  registry.add_root(root.path());
  EXPECT_THAT(registry.notices(), IsEmpty());
  ASSERT_THAT(registry.components(), SizeIs(2));
  EXPECT_THAT(registry.names("sampler"), ElementsAre("good"));
  EXPECT_THAT(registry.names("sampler", "cuda"), IsEmpty());
  EXPECT_EQ(registry.components("sampler")[0].library, root.path() / "sampler/good.cpu.so");

  const LoadedComponent& c = registry.load("sampler", "good");
  EXPECT_EQ(&registry.load("sampler", "good", "cpu"), &c);
  EXPECT_EQ(c.info.device, "cpu");
  EXPECT_EQ(c.schema->count, 2u);
  EXPECT_FALSE(c.compiler.empty());
  EXPECT_NE(c.component, nullptr);
}

TEST(Registry, ScanningOpensNothing) {
  Registry registry;
  registry.add_root(bad_plugin("crashes").parent_path());
  EXPECT_THAT(registry.names("sampler"), ElementsAre("good"));
}

TEST(Registry, AnUnknownNameListsWhatIsThereAndWhatComesClose) {
  Registry registry;
  registry.add_library(bad_plugin("good"));
  registry.add_builtin({"device", "cpu", "cpu", "", nullptr, nullptr, nullptr});
  registry.add_builtin({"sampler", "other", "cuda", "", nullptr, nullptr, nullptr});
  const auto load = [&](const char* kind, const char* name, const char* device) {
    return error_of([&] { registry.load(kind, name, device); });
  };
  EXPECT_EQ(load("sampler", "god", "cpu"),
            "error: no sampler named \"god\" for device cpu; did you mean \"good\"? installed: good");
  EXPECT_EQ(load("sampler", "xylophone", ""), "error: no sampler named \"xylophone\"; installed: good, other");
  EXPECT_EQ(load("sampler", "other", "cpu"),
            "error: no sampler named \"other\" for device cpu: it exists for cuda only; installed: good");
  EXPECT_EQ(load("draft", "ngram", "cpu"), "error: no draft named \"ngram\" for device cpu; none is installed");
  EXPECT_THAT(load("sampel", "good", "cpu"),
              AllOf(HasSubstr("there is no kind of component \"sampel\"; did you mean \"sampler\"? kinds: attention, "),
                    HasSubstr("kv_cache")));
}

TEST(Registry, WhatIsThereForTheCpuOnlyIsRefusedOnCuda) {
  for (const char* kind : {"attention", "draft", "kv_cache", "quantization", "sampler"}) {
    Registry registry;
    registry.add_builtin({kind, "plain", "cpu", "", nullptr, nullptr, nullptr});
    registry.add_builtin({kind, "fast", "cuda", "", nullptr, nullptr, nullptr});
    EXPECT_EQ(
        error_of([&] { registry.load(kind, "plain", "cuda"); }),
        std::string("error: no ") + kind + " named \"plain\" for device cuda: it exists for cpu only; installed: fast");
  }
}

TEST(Registry, ADraftOnTheHostIsThereForEveryDeviceWithoutItsOwn) {
  Registry registry;
  registry.add_builtin({"draft", "both", "cpu", "", nullptr, nullptr, nullptr});
  registry.add_builtin({"draft", "both", "host", "", nullptr, nullptr, nullptr});
  registry.add_builtin({"draft", "both", "zeta", "", nullptr, nullptr, nullptr});
  EXPECT_EQ(registry.load("draft", "both", "cpu").info.device, "cpu");
  EXPECT_EQ(registry.load("draft", "both", "cuda").info.device, "host");
  EXPECT_EQ(registry.load("draft", "both", "zeta").info.device, "zeta");
  EXPECT_THAT(registry.names("draft", "cuda"), ElementsAre("both"));
}

TEST(Registry, BuiltInComponentsUseTheSameDoor) {
  Registry registry;
  const auto made = std::make_shared<const int>(7);
  registry.add_builtin({"tokenizer", "bpe", "", "Byte pairs.", nullptr, nullptr, made});
  const LoadedComponent& c = registry.load("tokenizer", "bpe", "cpu");
  EXPECT_EQ(c.doc, "Byte pairs.");
  EXPECT_EQ(c.schema->count, 0u);
  EXPECT_EQ(c.implementation, made);
  EXPECT_TRUE(c.info.library.empty());
}

TEST(Registry, AnEarlierRootShadowsALaterOneAndSaysSo) {
  const Scratch first, second, mine;
  const fs::path one = first.copy(bad_plugin("good"), "good.cpu.so");
  const fs::path two = second.copy(bad_plugin("good"), "sampler/good.cpu.so");
  const fs::path three = mine.copy(bad_plugin("good"), "libmine.so");
  Registry registry;
  registry.add_root(first.path());
  registry.add_root(second.path());
  const LoadedComponent& before = registry.load("sampler", "good");
  EXPECT_EQ(before.info.library, one);
  registry.add_library(three);
  EXPECT_EQ(registry.load("sampler", "good").info.library, three);
  EXPECT_EQ(before.info.library, one);
  ASSERT_THAT(registry.notices(), SizeIs(2));
  EXPECT_EQ(registry.notices()[0].message,
            "sampler/good for device cpu: " + two.string() + " is shadowed by " + one.string());
  EXPECT_FALSE(registry.notices()[0].refused);
  EXPECT_EQ(registry.notices()[1].message,
            "sampler/good for device cpu: " + one.string() + " is shadowed by " + three.string());
  EXPECT_THAT(error_of([&] { registry.add_library(one); }), HasSubstr("was already added from " + three.string()));
}

TEST(Registry, TheSameTwiceInOneRootIsAnErrorThatListsBoth) {
  const Scratch root;
  const fs::path one = root.copy(bad_plugin("good"), "a.so");
  const fs::path two = root.copy(bad_plugin("good"), "sampler/b.so");
  root.copy(bad_plugin("throws_attention"), "throws.cpu.so");
  fs::create_symlink("throws.cpu.so", root.path() / "alias.so");
  Registry registry;
  EXPECT_EQ(error_of([&] { registry.add_root(root.path()); }),
            "error: sampler/good for device cpu is there more than once: " + one.string() + " and " + two.string() +
                "; keep one of them");
  EXPECT_THAT(registry.names("sampler"), IsEmpty());
  EXPECT_THAT(registry.names("attention"), ElementsAre("throws"));
  expect_that_the_process_goes_on();
}

TEST(Registry, TwoDevicesOfOneComponentHaveOneSchema) {
  Registry registry;
  registry.add_library(bad_plugin("good"));
  EXPECT_THAT(error_of([&] { registry.add_library(bad_plugin("other_device")); }),
              AllOf(HasSubstr(bad_plugin("good").string()), HasSubstr("must have the same on every device")));
  EXPECT_THAT(registry.components(), SizeIs(1));
}

TEST(Registry, TakesLibrariesByPathOnly) {
  const Scratch folder;
  folder.copy(bad_plugin("good"), "libgood.so");
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  Registry registry;
  EXPECT_THAT(error_of([&] { registry.add_library("libgood.so"); }),
              HasSubstr("\"libgood.so\" is a bare name, which is looked for nowhere: write a path"));
  registry.add_library("./libgood.so");
  fs::current_path(before);
  EXPECT_EQ(registry.load("sampler", "good").info.library, folder.path() / "libgood.so");
  EXPECT_EQ(error_of([&] {
              registry.add_library(folder.path() / "none.so", {"pipeline.toml", 3, 8});
            }),
            "pipeline.toml:3:8: error: " + (folder.path() / "none.so").string() + ": No such file or directory");
}

struct Broken {
  const char* name;
  const char* message;
};
void PrintTo(const Broken& b, std::ostream* out) {
  *out << b.name;
}

class BrokenLibrary : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenLibrary, IsRefusedWithItsReason) {
  const fs::path library = bad_plugin(GetParam().name);
  const std::string error = error_of_library(library);
  EXPECT_THAT(error, HasSubstr(library.string() + ": "));
  EXPECT_THAT(error, HasSubstr(GetParam().message));
  expect_that_the_process_goes_on();
}

INSTANTIATE_TEST_SUITE_P(
    All, BrokenLibrary,
    ::testing::Values(
        Broken{"needs_newer_minor", "needs plugin ABI 1.3 or later; this host has 1.0"},
        Broken{"other_major", "was built for plugin ABI 2.0; this host has 1.0"},
        Broken{"stale_layout", "was built against another draft of sampler/1 (its layout is "},
        Broken{"unknown_kind", "is of the kind \"samplor\", which this host does not know; did it mean \"sampler\"?"},
        Broken{"on_host", "is for the device \"host\", which stands for any; a sampler states the one that it runs on"},
        Broken{"no_plugin", "is no Tenon plugin"}, Broken{"schema_mismatch", "are not those that its note promises"},
        Broken{"note_contradicts", "its note says sampler/food for cpu, its table says sampler/good for cpu"},
        Broken{"no_symbol", "does not export tenon_plugin_v1: "},
        Broken{"missing_library", "libtenon_bad_stub.so: cannot open shared object file"},
        Broken{"refuses_init", "init failed: no licence for this host"}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(Registry, NewerAndOlderMinorVersionsLoad) {
  EXPECT_EQ(error_of_library(bad_plugin("newer_minor")), "no error");
  EXPECT_EQ(error_of_library(bad_plugin("older_minor")), "no error");
}

TEST(Registry, WhatIsNoLibraryIsPassedOverWithANotice) {
  const Scratch root;
  root.write("sampler/flsh.cpu.so", std::string("some text\n"));
  root.write("sampler/empty.so", std::string());
  std::vector<std::byte> half = test::contents_of(bad_plugin("good"));
  half.resize(half.size() / 2);
  root.write("half.so", half);
  root.copy(bad_plugin("stale_layout"), "good.cpu.so");
  mkfifo((root.path() / "pipe.so").c_str(), 0600);
  fs::create_symlink("nowhere", root.path() / "dangling.so");
  Registry registry;
  registry.add_root(root.path());
  EXPECT_THAT(registry.components(), IsEmpty());
  std::string said;
  for (const ScanNotice& n : registry.notices()) {
    EXPECT_TRUE(n.refused);
    said += n.message + '\n';
  }
  EXPECT_THAT(registry.notices(), SizeIs(6));
  EXPECT_THAT(said, HasSubstr("flsh.cpu.so: is no ELF file"));
  EXPECT_THAT(said, HasSubstr("empty.so: is no ELF file"));
  EXPECT_THAT(said, HasSubstr("half.so: is truncated"));
  EXPECT_THAT(said, HasSubstr("pipe.so: is not a regular file"));
  EXPECT_THAT(said, HasSubstr("dangling.so: No such file"));
  // Who asks for it by name learns why it is not there.
  EXPECT_THAT(error_of([&] { registry.load("sampler", "good", "cpu"); }),
              AllOf(HasSubstr("no sampler named \"good\" for device cpu"), HasSubstr("refused: "),
                    HasSubstr("another draft of sampler/1")));
}

// This is what the system says of every group while this lives; getgrgid_r() below asks it.
class FakeGroup {
 public:
  FakeGroup(std::string name, std::vector<std::string> members) : name_(std::move(name)), members_(std::move(members)) {
    for (std::string& m : members_) pointers_.push_back(m.data());
    pointers_.push_back(nullptr);
    there_ = this;
  }
  ~FakeGroup() { there_ = nullptr; }
  FakeGroup(const FakeGroup&) = delete;
  FakeGroup& operator=(const FakeGroup&) = delete;

  static FakeGroup* there() { return there_; }
  void describe(gid_t gid, group* out) {
    out->gr_name = name_.data();
    out->gr_gid = gid;
    out->gr_mem = pointers_.data();
  }

 private:
  static inline FakeGroup* there_ = nullptr;
  std::string name_;
  std::vector<std::string> members_;
  std::vector<char*> pointers_;
};

class Trust : public ::testing::Test {
 protected:
  std::string error() const { return error_of_library(library_); }

  Scratch folder_;
  fs::path library_ = folder_.copy(bad_plugin("good"), "sampler/good.cpu.so");
};

TEST_F(Trust, WhatOthersCanWriteToIsRefused) {
  EXPECT_EQ(error(), "no error");
  ASSERT_EQ(chmod(library_.c_str(), 0646), 0);
  EXPECT_THAT(error(), AllOf(HasSubstr("is not trusted"), HasSubstr("mode 0646"), HasSubstr("chmod o-w")));
  ASSERT_EQ(chmod(library_.c_str(), 0644), 0);
  ASSERT_EQ(chmod(library_.parent_path().c_str(), 01777), 0);
  EXPECT_THAT(error(), AllOf(HasSubstr("can be written by every user"), HasSubstr("mode 1777")));
  expect_that_the_process_goes_on();
}

TEST_F(Trust, ARootThatOthersCanWriteToIsRefused) {
  ASSERT_EQ(chmod(folder_.path().c_str(), 0777), 0);
  Registry registry;
  registry.add_root(folder_.path());
  EXPECT_THAT(registry.components(), IsEmpty());
  ASSERT_THAT(registry.notices(), SizeIs(1));
  EXPECT_THAT(registry.notices()[0].message, HasSubstr(folder_.path().string() + " (mode 0777"));
}

TEST_F(Trust, WhatAGroupCanWriteToIsRefused) {
  if (chown(library_.c_str(), static_cast<uid_t>(-1), 65534) != 0) GTEST_SKIP() << "needs root to change the group";
  ASSERT_EQ(chmod(library_.c_str(), 0664), 0);
  EXPECT_THAT(error(), AllOf(HasSubstr("can be written by its group"), HasSubstr("group 65534")));
}

TEST_F(Trust, OnlyTheUsersOwnGroupWithoutOtherMembersMayWrite) {
  const passwd& user = *getpwuid(geteuid());
  if (chown(library_.c_str(), static_cast<uid_t>(-1), user.pw_gid) != 0) GTEST_SKIP() << "the group cannot be set";
  ASSERT_EQ(chmod(library_.c_str(), 0664), 0);
  const auto error_among = [&](const std::string& name, std::vector<std::string> members) {
    const FakeGroup group(name, std::move(members));
    return error();
  };
  const std::string own = user.pw_name;
  EXPECT_EQ(error_among(own, {}), "no error");
  EXPECT_EQ(error_among(own, {own}), "no error");
  EXPECT_THAT(error_among(own, {"somebody"}), HasSubstr("can be written by its group"));
  EXPECT_THAT(error_among(own, {own, "somebody"}), HasSubstr("can be written by its group"));
  EXPECT_THAT(error_among("staff", {}), HasSubstr("can be written by its group"));
}

TEST_F(Trust, WhatBelongsToAnotherIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to change the owner";
  ASSERT_EQ(chown(library_.c_str(), 65534, 0), 0);
  EXPECT_THAT(error(), HasSubstr("belongs to neither root nor the user"));
}

}  // namespace
}  // namespace tenon

// This is called instead of the C library's, by the library under test as well.
extern "C" __attribute__((visibility("default"))) int getgrgid_r(gid_t gid, group* out, char* room, size_t size,
                                                                 group** found) {
  if (tenon::FakeGroup* fake = tenon::FakeGroup::there()) {
    fake->describe(gid, out);
    *found = out;
    return 0;
  }
  using Function = int (*)(gid_t, group*, char*, size_t, group**);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getgrgid_r"));
  return real(gid, out, room, size, found);
}
