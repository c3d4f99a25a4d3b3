#include "gguf_metadata_copy.h"

#include "gguf_parser.h"
#include "mapped_file.h"

namespace tenon::weights {
namespace {

constexpr std::string_view kFileType = "general.file_type", kVersion = "general.quantization_version";
constexpr uint32_t kQuantizationVersion = 2;  // the version of ggml's block formats

}  // namespace

GgufPairs copy_gguf_metadata(const std::filesystem::path& path, uint32_t file_type, bool blocks, uint64_t& alignment) {
  const MappedFile file(path);
  const GgufFile content = parse_gguf(file.bytes(), path.string());
  alignment = content.alignment;
  GgufPairs pairs;
  for (const MetadataPair& pair : content.pairs) {
    if (pair.key.starts_with("split.")) continue;
    const auto raw = file.bytes().subspan(pair.begin, pair.end - pair.begin);
    if (pair.key == kFileType) {
      pairs.add_u32(kFileType, file_type);
    } else {
      pairs.add_raw({reinterpret_cast<const char*>(raw.data()), raw.size()});
    }
  }
  if (!content.metadata.contains(kFileType)) pairs.add_u32(kFileType, file_type);
  if (blocks && !content.metadata.contains(kVersion)) pairs.add_u32(kVersion, kQuantizationVersion);
  return pairs;
}

void add_file_type(GgufPairs& pairs, uint32_t file_type, bool blocks) {
  pairs.add_u32(kFileType, file_type);
  if (blocks) pairs.add_u32(kVersion, kQuantizationVersion);
}

}  // namespace tenon::weights
