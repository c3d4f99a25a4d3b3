// This opens a GGUF model of one file or of several, as ggml's gguf-split leaves them: "<stem>-00002-of-00003.gguf".
// Whichever part is named, all are found by their names beside it. Invariants: each part says by split.no and
// split.count what its name says; what another part has of metadata is the same in the first, which alone counts; all
// tensors together are as many as split.tensors.count. Tensors of a part know its number. Those of all experts are
// listed as they are, and for each expert as unlisted ones.
#include "expert_tensors.h"
#include "gguf_parser.h"
#include "layout.h"
#include "readers.h"
#include "tenon/core/files.h"

namespace tenon::weights {
namespace {

constexpr char kExtension[] = ".gguf";

struct OpenPart {
  MappedFile file;
  GgufFile content;
};

OpenPart open_part(const std::filesystem::path& path, uint32_t index) {
  MappedFile file(path);
  GgufFile content = parse_gguf(file.bytes(), path.string(), index);
  return {std::move(file), std::move(content)};
}

std::optional<int64_t> integer(const GgufFile& file, std::string_view key) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end()) return std::nullopt;
  const auto* value = std::get_if<int64_t>(&found->second);
  return value ? std::optional(*value) : std::nullopt;
}

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& message) {
  throw Error(ErrorCode::kModel, {path.string()}, message);
}

// Returns the name that `path` has as part of `count`, checked against what the file says of itself.
PartName part_name(const std::filesystem::path& path, int64_t count) {
  const auto name = PartName::parse(path);
  if (!name || name->count != count) {
    fail(path, "split.count says this is one of " + std::to_string(count) +
                   " files, so its name must end in -NNNNN-of-NNNNN.gguf with that count for the others to be found");
  }
  return *name;
}

void check_part(const OpenPart& part, uint32_t number, uint32_t count) {
  const auto found_number = integer(part.content, "split.no");
  const auto found_count = integer(part.content, "split.count");
  if (found_number == int64_t{number} - 1 && found_count == count) return;
  const auto text = [](std::optional<int64_t> value) {
    return value ? std::to_string(*value) : std::string("missing");
  };
  fail(part.file.path(), "split.no is " + text(found_number) + " and split.count " + text(found_count) +
                             "; by the name they must be " + std::to_string(number - 1) + " and " +
                             std::to_string(count));
}

void require_parts(const std::filesystem::path& folder, const PartName& name) {
  Findings findings((folder / name.file_name(name.number, kExtension)).string());
  for (uint32_t number = 1; number <= name.count; ++number) {
    const std::filesystem::path part = folder / name.file_name(number, kExtension);
    std::error_code error;
    if (!std::filesystem::exists(part, error)) {
      findings.add("part " + std::to_string(number) + " of " + std::to_string(name.count) +
                   " is missing: " + part.string());
    }
  }
  findings.throw_if_any();
}

// The first part holds the metadata. What another one says beside which part it is must be the same there.
void check_same_model(const GgufFile& first, const OpenPart& part) {
  Findings findings(part.file.path().string());
  for (const auto& [key, value] : part.content.metadata) {
    if (key == "split.no" || key == "general.alignment") continue;
    const auto known = first.metadata.find(key);
    if (known != first.metadata.end() && known->second == value) continue;
    findings.add("key " + in_quotes(key) + ": found " + describe(value) + ", expected " +
                 (known == first.metadata.end() ? "no such key" : describe(known->second)) +
                 " as in the first part; are these parts of different models?");
  }
  findings.throw_if_any();
}

std::vector<OpenPart> open_parts(const std::filesystem::path& folder, const PartName& name, OpenPart opened) {
  require_parts(folder, name);
  std::vector<OpenPart> parts;
  const auto take = [&](OpenPart part) {
    parts.push_back(std::move(part));
    check_part(parts.back(), static_cast<uint32_t>(parts.size()), name.count);
    check_same_model(parts.front().content, parts.back());
  };
  const auto open_from = [&](uint32_t first, uint32_t end) {
    for (uint32_t n = first; n < end; ++n) take(open_part(folder / name.file_name(n, kExtension), n - 1));
  };
  open_from(1, name.number);
  for (WeightTensor& t : opened.content.tensors) t.file = name.number - 1;
  take(std::move(opened));
  open_from(name.number + 1, name.count + 1);
  return parts;
}

}  // namespace

bool claims_gguf(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  if (std::filesystem::path(path).extension() == kExtension) return true;
  return read_start(path, 4, error) == "GGUF";  // if it cannot be read, nobody claims it and open_weights() says why
}

std::unique_ptr<Weights> open_gguf(const std::string& text, const WeightsOptions&) {
  const std::filesystem::path path(text);
  OpenPart opened = open_part(path, 0);
  for (const char* key : {"split.no", "split.count"}) {
    const auto found = opened.content.metadata.find(key);
    if (found == opened.content.metadata.end() || std::holds_alternative<int64_t>(found->second)) continue;
    fail(path, "key " + in_quotes(key) + ": found " + describe(found->second) + ", expected an integer");
  }
  const int64_t count = integer(opened.content, "split.count").value_or(1);
  std::vector<OpenPart> parts;
  if (count > 1) {
    const PartName name = part_name(path, count);
    parts = open_parts(path.parent_path(), name, std::move(opened));
  } else {
    parts.push_back(std::move(opened));
  }

  Contents contents{"gguf", {}, std::move(parts.front().content.metadata)};
  std::vector<MappedFile> files;
  for (OpenPart& part : parts) {
    auto& tensors = part.content.tensors;
    contents.tensors.insert(contents.tensors.end(), std::make_move_iterator(tensors.begin()),
                            std::make_move_iterator(tensors.end()));
    files.push_back(std::move(part.file));
  }
  const auto total = contents.metadata.find("split.tensors.count");
  if (count > 1 && total != contents.metadata.end()) {
    const auto* expected = std::get_if<int64_t>(&total->second);
    if (!expected || std::cmp_not_equal(*expected, contents.tensors.size())) {
      fail(path, "the " + std::to_string(count) + " parts hold " + std::to_string(contents.tensors.size()) +
                     " tensors; split.tensors.count says " + (expected ? std::to_string(*expected) : "no integer"));
    }
  }
  for (const WeightTensor& t : contents.tensors) {
    for (WeightTensor& part : expert_tensors(t)) contents.unlisted.push_back(std::move(part));
  }
  return std::make_unique<FileWeights>(std::move(contents), std::move(files));
}

}  // namespace tenon::weights
