// These tests write output files, compressed and plain: read while they grow, abandoned, and kept from replacing
// others.
#include "tenon/profiler/output_file.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <memory>
#include <ostream>
#include <random>

#include "byte_source.h"
#include "deflate.h"
#include "temp_folder.h"

namespace tenon::profiler {
namespace {

std::string gunzip(const std::string& path) {
  gzFile in = gzopen(path.c_str(), "rb");
  std::string text(1U << 22U, '\0');
  const int n = gzread(in, text.data(), static_cast<unsigned>(text.size()));
  EXPECT_EQ(gzclose(in), Z_OK);  // also: the checksum was right
  text.resize(static_cast<size_t>(std::max(n, 0)));
  return text;
}

std::string unpack(ByteSource::Read read) {
  ByteSource source(std::move(read));
  std::string text;
  for (std::string_view part = source.next(); !part.empty(); part = source.next()) text += part;
  EXPECT_EQ(source.damage(), "");
  return text;
}

std::string noise(size_t size) {
  std::mt19937 random(7);
  std::string text;
  while (text.size() < size) text += static_cast<char>(random() & 0xFFU);
  return text;
}

struct Maker {
  const char* name;
  std::unique_ptr<Deflate> (*make)();
};
void PrintTo(const Maker& maker, std::ostream* out) {
  *out << maker.name;
}

class EveryDeflate : public testing::TestWithParam<Maker> {};

// Random bytes come out longer than they went in, and in pieces.
TEST_P(EveryDeflate, PacksWhatInflateUnpacks) {
  const auto deflate = GetParam().make();
  if (!deflate) GTEST_SKIP() << GetParam().name << " is not installed";
  std::string packed, body;
  const auto put = [&](std::string_view bytes) { packed += bytes; };
  z_stream inflated{};
  ASSERT_EQ(inflateInit2(&inflated, -15), Z_OK);
  std::string out(3'000'000, '\0');
  inflated.next_out = reinterpret_cast<Bytef*>(out.data());
  inflated.avail_out = static_cast<uInt>(out.size());
  const auto unpack = [&](int expected) {
    inflated.next_in = reinterpret_cast<Bytef*>(packed.data());
    inflated.avail_in = static_cast<uInt>(packed.size());
    EXPECT_EQ(inflate(&inflated, Z_NO_FLUSH), expected);
    packed.clear();
    EXPECT_EQ(std::string_view(out).substr(0, inflated.total_out), body);
  };
  for (const std::string& part :
       {noise(700'000), std::string(1'000'000, 'a'), std::string("{\"ph\":\"X\"}"), noise(10)}) {
    deflate->run(part, Deflate::Mode::kGoOn, put);
    deflate->run({}, Deflate::Mode::kFlush, put);
    body += part;
    unpack(Z_OK);
  }
  deflate->run("end", Deflate::Mode::kGoOn, put);
  deflate->run({}, Deflate::Mode::kEnd, put);
  body += "end";
  unpack(Z_STREAM_END);
  inflateEnd(&inflated);
}

INSTANTIATE_TEST_SUITE_P(Deflate, EveryDeflate,
                         testing::Values(Maker{"zlib", make_zlib_deflate}, Maker{"isal", make_isal_deflate}),
                         [](const auto& maker) { return std::string(maker.param.name); });

TEST(OutputFile, FillsInTheHeadOfAGzipStreamLast) {
  const TempFolder folder;
  const std::string path = folder.file("x.gz");
  const std::string body = noise(300'000) + std::string(500'000, 'a') + noise(1000);
  OutputFile file(path, 5);
  for (size_t i = 0; i < body.size(); i += 70'001) {
    file.write(std::string_view(body).substr(i, 70'001));
    ASSERT_TRUE(file.flush().ok());
  }
  ASSERT_TRUE(file.finish("HEAD:").ok());
  EXPECT_EQ(gunzip(path), "HEAD:" + body);
  EXPECT_EQ(unpack(read_file(path)), "HEAD:" + body);
}

TEST(OutputFile, WritesPlainBytesUnderAnyOtherName) {
  const TempFolder folder;
  const std::string path = folder.file("x.json");
  OutputFile file(path, 5);
  file.write("body");
  ASSERT_TRUE(file.finish("HEAD:").ok());
  EXPECT_EQ(folder.bytes(path), "HEAD:body");
}

TEST(OutputFile, IsReadableWhileItGrows) {
  const TempFolder folder;
  const std::string path = folder.file("x.gz");
  OutputFile file(path, 5);
  file.write("body");
  ASSERT_TRUE(file.flush().ok());
  ByteSource source(read_file(path + ".part"));
  std::string text;
  for (std::string_view part = source.next(); !part.empty(); part = source.next()) text += part;
  EXPECT_EQ(text, "     body");
  EXPECT_NE(source.damage(), "");
}

TEST(OutputFile, LeavesNothingWhenItIsAbandoned) {
  const TempFolder folder;
  { OutputFile(folder.file("x.json"), 5).write("body"); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(OutputFile, DoesNotReplaceWhatAppearedMeanwhileUnlessItMay) {
  for (const bool replace : {false, true}) {
    const TempFolder folder;
    const std::string path = folder.file("x.json");
    OutputFile file(path, 5, {.replace = replace});
    file.write("body");
    std::ofstream(path) << "appeared";
    EXPECT_EQ(file.finish("HEAD:").ok(), replace);
    EXPECT_EQ(folder.bytes(path), replace ? "HEAD:body" : "appeared");
  }
}

TEST(ByteSource, ReadsSeveralGzipMembersAsOneText) {
  const TempFolder folder;
  std::string joined;
  for (const char* body : {"one", "two"}) {
    OutputFile file(folder.file("x.gz"), 1);
    file.write(body);
    ASSERT_TRUE(file.finish("-").ok());
    joined += folder.bytes(folder.file("x.gz"));
  }
  EXPECT_EQ(unpack(read_bytes(joined)), "-one-two");
}

}  // namespace
}  // namespace tenon::profiler
