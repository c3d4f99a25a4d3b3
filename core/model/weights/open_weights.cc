#include <filesystem>

#include "layout.h"
#include "readers.h"
#include "tenon/core/error.h"
#include "tenon/core/files.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;

constexpr WeightsReader kReaders[] = {
    {"gguf", "a GGUF file, version 2 or 3; of a split one any part, named like model-00001-of-00003.gguf",
     weights::claims_gguf, weights::open_gguf},
    {"safetensors",
     "a Hugging Face folder, or a .safetensors file or .safetensors.index.json with its config.json beside",
     weights::claims_safetensors, weights::open_safetensors},
    {"synthetic", "\"synthetic:NAME\": made-up weights in the shape of a known model, such as synthetic:llama-2-7b",
     weights::claims_synthetic, weights::open_synthetic},
};

std::string accepted() {
  std::string text = "; the readers accept";
  for (const WeightsReader& reader : kReaders) {
    text += std::string("\n  ") + std::string(reader.name) + ": " + std::string(reader.doc);
  }
  return text;
}

std::vector<std::string> names_beside(const fs::path& path) {
  std::error_code ignored;
  return names_in_folder(path.has_parent_path() ? path.parent_path() : fs::path("."), ignored);
}

[[noreturn]] void refuse(const std::string& text) {
  const fs::path path(text);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    const std::string nearest = nearest_name(path.filename().string(), names_beside(path));
    throw Error(ErrorCode::kIo, {text},
                "no such file or folder" +
                    (nearest.empty() ? "" : "; did you mean " + (path.parent_path() / nearest).string() + "?") +
                    accepted());
  }
  if (error) throw Error(ErrorCode::kIo, {text}, "cannot examine: " + error.message());
  if (status.type() != fs::file_type::regular) {
    throw Error(ErrorCode::kModel, {text}, "neither a file nor a folder" + accepted());
  }
  const std::string found = read_start(path, 8, error);
  if (error) throw Error(ErrorCode::kIo, {text}, "cannot be read: " + error.message());
  throw Error(
      ErrorCode::kModel, {text},
      (found.empty() ? "an empty file" : "a file of no known kind, starting with " + weights::in_quotes(found)) +
          accepted());
}

}  // namespace

std::span<const WeightsReader> builtin_weights_readers() {
  return kReaders;
}

std::unique_ptr<Weights> open_weights(const std::string& path, const WeightsOptions& options) {
  for (const WeightsReader& reader : kReaders) {
    if (reader.claims(path)) return reader.open(path, options);
  }
  refuse(path);
}

}  // namespace tenon
