// This writes and reads session files: a header, the facts as lines of text, the tokens, and the cells, each filled up
// with zeros to kPartAlignment. All numbers are little-endian. The header has the sizes of all of them and a checksum of
// the whole file, so that no byte of it can be another one unnoticed.
#include "tenon/core/saved_sequence.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "../../model/weights/mapped_file.h"
#include "tenon/core/atomic_file.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is read and written in place");

constexpr uint64_t kPartAlignment = 64;

struct Header {
  std::array<char, 8> magic{'T', 'E', 'N', 'O', 'N', 'S', 'E', 'S'};
  uint32_t version = 1;
  uint32_t reserved = 0;
  uint64_t file_bytes = 0;  // the whole file has so many
  uint64_t fact_bytes = 0, tokens = 0, cell_bytes = 0;
  uint64_t reserved_too = 0;
  uint64_t checksum = 0;  // it is the whole file's, computed with 0 here
};
static_assert(sizeof(Header) == kPartAlignment);

constexpr uint64_t padded(uint64_t bytes) {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

uint64_t bytes_of_file(const Header& h) {
  return sizeof(Header) + padded(h.fact_bytes) + padded(h.tokens * sizeof(int32_t)) + padded(h.cell_bytes);
}

// Eight sums over every eighth word lie side by side, to be as fast as memory. A step is a bijection of the sum for a
// given word and of the word for a given sum, and so is the end: if exactly one word changes, so does the result.
class Checksum {
 public:
  // Takes in a part of the file, as it is filled up there.
  void add(std::span<const std::byte> bytes) {
    const size_t whole = bytes.size() / kPartAlignment * kPartAlignment;
    for (size_t at = 0; at < whole; at += kPartAlignment) add_block(bytes.data() + at);
    if (whole == bytes.size()) return;
    std::array<std::byte, kPartAlignment> rest{};
    std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(whole), bytes.end(), rest.begin());
    add_block(rest.data());
  }
  uint64_t result() const {
    uint64_t all = 0;
    for (const uint64_t sum : sums_) all = mixed(all, sum);
    return all;
  }

 private:
  static uint64_t mixed(uint64_t sum, uint64_t word) {
    sum = (sum ^ word) * 0x9FB21C651E98DF25U;
    return sum ^ sum >> 32U;
  }
  void add_block(const std::byte* block) {
    std::array<uint64_t, kPartAlignment / sizeof(uint64_t)> words{};
    std::memcpy(words.data(), block, kPartAlignment);
    for (size_t i = 0; i < words.size(); ++i) sums_[i] = mixed(sums_[i], words[i]);
  }

  std::array<uint64_t, kPartAlignment / sizeof(uint64_t)> sums_{1, 2, 3, 4, 5, 6, 7, 8};
};

// These are the parts of a file in their order.
struct Parts {
  Header header;
  std::span<const std::byte> facts, tokens, cells;

  uint64_t checksum() const {
    Header without = header;
    without.checksum = 0;
    Checksum sum;
    sum.add(std::as_bytes(std::span(&without, 1)));
    sum.add(facts);
    sum.add(tokens);
    sum.add(cells);
    return sum.result();
  }
};

std::string text_of(std::span<const SessionFact> facts) {
  std::string text;
  for (const SessionFact& fact : facts) text += fact.name + ": " + fact.value + "\n";
  return text;
}

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& message) {
  throw Error(ErrorCode::kIo, {path.string()}, message);
}

std::vector<SessionFact> facts_of(std::string_view text, const std::filesystem::path& path) {
  std::vector<SessionFact> facts;
  while (!text.empty()) {
    const size_t end = text.find('\n'), colon = text.find(": ");
    if (end == std::string_view::npos || colon > end) {
      fail(path, "is damaged: it says \"" + std::string(text.substr(0, std::min<size_t>(end, 80))) +
                     "\" where \"NAME: VALUE\" and the end of the line should be");
    }
    facts.push_back({std::string(text.substr(0, colon)), std::string(text.substr(colon + 2, end - colon - 2))});
    text.remove_prefix(end + 1);
  }
  return facts;
}

// Throws unless the header is that of a file of so many bytes.
void check_header(const Header& header, uint64_t size, const std::filesystem::path& path) {
  const Header right;
  if (size < sizeof(header.magic) || header.magic != right.magic) {
    fail(path, "this is no session that --save-session wrote: it does not begin with " +
                   std::string(right.magic.data(), right.magic.size()));
  }
  if (size < sizeof(Header)) {
    fail(path, "is cut short: it has " + std::to_string(size) + " bytes, its header alone takes " +
                   std::to_string(sizeof(Header)));
  }
  if (header.version != right.version) {
    fail(path, "is of version " + std::to_string(header.version) + "; this program reads version " +
                   std::to_string(right.version) + ": save the session anew");
  }
  if (size < header.file_bytes) {
    fail(path, "is cut short: it has " + std::to_string(size) + " bytes of " + std::to_string(header.file_bytes));
  }
  // The size bounds them, so that no sum overflows.
  const bool bounded = std::max({header.fact_bytes, header.tokens, header.cell_bytes}) <= size;
  if (!bounded || bytes_of_file(header) != size || header.file_bytes != size || header.tokens == 0) {
    fail(path, "is damaged: its header contradicts itself or its size: " + std::to_string(header.fact_bytes) +
                   " bytes of facts, " + std::to_string(header.tokens) + " tokens, " +
                   std::to_string(header.cell_bytes) + " bytes of cells, in " + std::to_string(size) + " bytes");
  }
}

}  // namespace

struct SavedSequence::File {
  weights::MappedFile mapping;
};

SavedSequence::SavedSequence(std::vector<SessionFact> facts, std::vector<int32_t> tokens, std::vector<std::byte> cells)
    : facts_(std::move(facts)), tokens_(std::move(tokens)), own_cells_(std::move(cells)), cells_(own_cells_) {}

SavedSequence::SavedSequence(std::unique_ptr<File> file) : path_(file->mapping.path()), file_(std::move(file)) {
  const std::span<const std::byte> bytes = file_->mapping.bytes();
  file_->mapping.prefetch(0, bytes.size());
  Header header;
  if (!bytes.empty()) std::memcpy(&header, bytes.data(), std::min(bytes.size(), sizeof(header)));
  check_header(header, bytes.size(), path_);
  const uint64_t token_bytes = header.tokens * sizeof(int32_t);
  const uint64_t tokens_at = sizeof(Header) + padded(header.fact_bytes), cells_at = tokens_at + padded(token_bytes);
  const Parts parts{.header = header,
                    .facts = bytes.subspan(sizeof(Header), padded(header.fact_bytes)),
                    .tokens = bytes.subspan(tokens_at, padded(token_bytes)),
                    .cells = bytes.subspan(cells_at)};
  if (parts.checksum() != header.checksum) {
    fail(path_, "is damaged: it does not have the checksum that its header states; save the session anew");
  }
  facts_ = facts_of({reinterpret_cast<const char*>(parts.facts.data()), header.fact_bytes}, path_);
  tokens_.resize(header.tokens);
  std::memcpy(tokens_.data(), parts.tokens.data(), token_bytes);
  cells_ = parts.cells.first(header.cell_bytes);
}

SavedSequence::~SavedSequence() = default;

std::shared_ptr<const SavedSequence> SavedSequence::read(const std::filesystem::path& path) {
  return std::shared_ptr<const SavedSequence>(
      new SavedSequence(std::make_unique<File>(File{weights::MappedFile(path)})));
}

uint64_t SavedSequence::file_bytes() const {
  Header header;
  header.fact_bytes = text_of(facts_).size();
  header.tokens = tokens_.size();
  header.cell_bytes = cells_.size();
  return bytes_of_file(header);
}

void SavedSequence::check_facts(std::span<const SessionFact> own) const {
  const auto value_in = [](std::span<const SessionFact> facts, const std::string& name) -> std::string {
    const auto found = std::ranges::find(facts, name, &SessionFact::name);
    return found == facts.end() ? "" : found->value;
  };
  std::vector<Diagnostic> wrong;
  const auto compare = [&](const std::string& name) {
    const std::string saved = value_in(facts_, name), wanted = value_in(own, name);
    if (saved == wanted) return;
    Diagnostic other;
    other.where.file = path_.string();
    other.message = name + ": the session was saved with " + (saved.empty() ? "none" : saved) +
                    ", and this pipeline has " + (wanted.empty() ? "none" : wanted) +
                    "; load it where that is as it was saved, or save one with this pipeline";
    wrong.push_back(std::move(other));
  };
  for (const SessionFact& fact : own) compare(fact.name);
  for (const SessionFact& fact : facts_) {
    if (std::ranges::find(own, fact.name, &SessionFact::name) == own.end()) compare(fact.name);
  }
  if (!wrong.empty()) throw Error(ErrorCode::kRequest, std::move(wrong));
}

void SavedSequence::write(const std::filesystem::path& path, bool replace) const {
  const std::string facts = text_of(facts_);
  Parts parts{.header = {},
              .facts = std::as_bytes(std::span(facts)),
              .tokens = std::as_bytes(std::span(tokens_)),
              .cells = cells_};
  parts.header.fact_bytes = facts.size();
  parts.header.tokens = tokens_.size();
  parts.header.cell_bytes = cells_.size();
  parts.header.file_bytes = file_bytes();
  parts.header.checksum = parts.checksum();
  const auto check = [&](std::error_code error) {
    if (error) fail(path, "cannot be written: " + error.message());
  };
  AtomicFile file(path, {.bytes = parts.header.file_bytes, .replace = replace});
  uint64_t at = 0;
  for (const auto part : {std::as_bytes(std::span(&parts.header, 1)), parts.facts, parts.tokens, parts.cells}) {
    check(file.write_at(part, at));
    const std::array<std::byte, kPartAlignment> zeros{};
    check(file.write_at(std::span(zeros).first(padded(part.size()) - part.size()), at + part.size()));
    at += padded(part.size());
  }
  check(file.sync());
  check(file.commit());
}

}  // namespace tenon
