// These tests read notes from ELF files that are sound, damaged, cut off and mutated.
#include "registry/elf_note.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "scratch.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

using Bytes = std::vector<std::byte>;

Bytes good() {
  return test::contents_of(test::bad_plugin("good"));
}

// Returns what reading the note says: the component's name, "no note", or the error.
std::string read(const Bytes& bytes) {
  try {
    const std::optional<tenon_note> note = read_note(ElfFile(bytes));
    return note ? std::string(note->kind) + '/' + note->name : "no note";
  } catch (const Error& e) {
    return e.what();
  }
}

template <class T>
T& at(Bytes& bytes, size_t offset) {
  return *reinterpret_cast<T*>(bytes.data() + offset);
}

size_t place_of_note(const Bytes& bytes) {
  const ElfFile file(bytes);
  for (const ElfSection& s : file.sections()) {
    if (s.name == ".note.tenon") return s.offset;
  }
  return 0;
}

TEST(ElfNote, ReadsAPlugin) {
  const std::optional<tenon_note> note = read_note(ElfFile(test::bad_plugin("good")));
  ASSERT_TRUE(note.has_value());
  EXPECT_STREQ(note->kind, "sampler");
  EXPECT_STREQ(note->name, "good");
  EXPECT_STREQ(note->device, "cpu");
  EXPECT_STREQ(note->targets, "x86-64");
  EXPECT_EQ(note->abi_major, TENON_ABI_MAJOR);
  EXPECT_STREQ(note->layout_hash, TENON_LAYOUT_SAMPLER);
}

TEST(ElfNote, ReadsALibraryWhoseSectionsAreStripped) {
  Bytes bytes = good();
  auto& header = at<Elf64_Ehdr>(bytes, 0);
  header.e_shnum = 0;
  header.e_shoff = 0;
  header.e_shstrndx = 0;
  EXPECT_EQ(read(bytes), "sampler/good");
}

TEST(ElfNote, TellsWhatIsNoLibrary) {
  EXPECT_EQ(read({}), "error: is no ELF file");
  EXPECT_EQ(read(Bytes(4096, std::byte{'x'})), "error: is no ELF file");
  EXPECT_EQ(read(test::contents_of(test::bad_plugin("no_plugin"))), "no note");
  Bytes bytes = good();
  at<Elf64_Ehdr>(bytes, 0).e_machine = EM_AARCH64;
  EXPECT_EQ(read(bytes), "error: is an ELF file, but not of a 64-bit x86-64 machine");
  bytes = good();
  at<Elf64_Ehdr>(bytes, 0).e_ident[EI_CLASS] = ELFCLASS32;
  EXPECT_EQ(read(bytes), "error: is an ELF file, but not of a 64-bit x86-64 machine");
  bytes = good();
  at<Elf64_Ehdr>(bytes, 0).e_type = ET_REL;
  EXPECT_EQ(read(bytes), "error: is an ELF file, but no shared library");
}

TEST(ElfNote, TellsADamagedNote) {
  const size_t place = place_of_note(good());
  ASSERT_NE(place, 0u);
  Bytes bytes = good();
  at<Elf64_Nhdr>(bytes, place).n_descsz = sizeof(tenon_note) - 4;
  EXPECT_THAT(read(bytes), HasSubstr("has a plugin note of " + std::to_string(sizeof(tenon_note) - 4) + " bytes"));
  bytes = good();
  at<Elf64_Nhdr>(bytes, place).n_descsz = 0xfffffff0u;
  EXPECT_EQ(read(bytes), "error: has a truncated note");
  bytes = good();
  std::memset(at<tenon_note_section>(bytes, place).note.name, 'x', sizeof(tenon_note::name));
  EXPECT_EQ(read(bytes), "error: has a plugin note whose name is no proper text");
  bytes = good();
  at<tenon_note_section>(bytes, place).note.kind[2] = '\n';
  EXPECT_EQ(read(bytes), "error: has a plugin note whose kind is no proper text");
}

TEST(ElfNote, ANameMayCarryItsVendors) {
  const size_t place = place_of_note(good());
  const auto named = [&](const char* name) {
    Bytes bytes = good();
    auto& text = at<tenon_note_section>(bytes, place).note.name;
    std::memset(text, 0, sizeof(text));
    std::memcpy(text, name, std::strlen(name));
    return read(bytes);
  };
  EXPECT_EQ(named("acme.good_1"), "sampler/acme.good_1");
  for (const char* wrong : {".good", "acme.", "acme..good", "Acme.good", "acme/good"}) {
    EXPECT_EQ(named(wrong), "error: has a plugin note whose name is no proper text") << wrong;
  }
}

TEST(ElfNote, AbsurdTablesAreRefusedBeforeTheyAreAllocated) {
  Bytes bytes = good();
  at<Elf64_Ehdr>(bytes, 0).e_shoff = UINT64_MAX - 8;
  EXPECT_EQ(read(bytes), "error: is truncated: a part of it lies beyond its end");
  bytes = good();
  const size_t sections = at<Elf64_Ehdr>(bytes, 0).e_shoff;
  at<Elf64_Shdr>(bytes, sections + sizeof(Elf64_Shdr)).sh_size = UINT64_MAX / 2;
  EXPECT_EQ(read(bytes), "error: is truncated: a part of it lies beyond its end");
}

TEST(ElfNote, EveryTruncationIsAnErrorOrReadsTheSame) {
  const Bytes whole = good();
  for (size_t size = 0; size < whole.size(); size += std::max<size_t>(1, size / 64)) {
    const std::string said = read(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)));
    EXPECT_TRUE(said == "sampler/good" || said.starts_with("error: ")) << size << ": " << said;
  }
}

TEST(ElfNote, SurvivesMutations) {
  const Bytes whole = good();
  std::mt19937 random(20260101);
  const size_t note = place_of_note(whole);
  const size_t sections = ElfFile(whole).sections().size() * sizeof(Elf64_Shdr);
  const size_t table = reinterpret_cast<const Elf64_Ehdr*>(whole.data())->e_shoff;
  const std::pair<size_t, size_t> places[] = {
      {0, sizeof(Elf64_Ehdr) + 8 * sizeof(Elf64_Phdr)}, {note, sizeof(tenon_note_section)}, {table, sections}};
  int errors = 0;
  for (int round = 0; round < 5000; ++round) {
    Bytes bytes = whole;
    for (unsigned n = 1 + random() % 4; n > 0; --n) {
      const auto [begin, size] = places[random() % std::size(places)];
      constexpr unsigned kValues[] = {0, 1, 0x7f, 0x80, 0xff};
      const unsigned value = random() % 2 ? random() % 256 : kValues[random() % std::size(kValues)];
      bytes[begin + random() % size] = static_cast<std::byte>(value);
    }
    errors += read(bytes).starts_with("error: ");
    try {
      const ElfFile file(bytes);
      static_cast<void>(file.dynamic_symbols());
      static_cast<void>(file.dynamic());
    } catch (const Error&) {
    }
  }
  EXPECT_GT(errors, 250);
}

TEST(ElfFile, ListsSymbolsAndWhatIsNeeded) {
  const ElfFile tidy(test::bad_plugin("good"));
  int defined = 0;
  for (const ElfSymbol& s : tidy.dynamic_symbols()) defined += s.defined && !s.name.empty();
  EXPECT_EQ(defined, 1);
  EXPECT_THAT(tidy.dynamic().needed, Contains(HasSubstr("libstdc++")));
  const ElfFile untidy(test::bad_plugin("untidy"));
  EXPECT_THAT(untidy.dynamic().run_paths, Contains(HasSubstr("/opt/tenon/lib")));
#ifndef __clang__  // clang never makes such symbols
  const std::vector<ElfSymbol> symbols = untidy.dynamic_symbols();
  EXPECT_TRUE(
      std::any_of(symbols.begin(), symbols.end(), [](const ElfSymbol& s) { return s.binding == STB_GNU_UNIQUE; }));
#endif
}

}  // namespace
}  // namespace tenon
