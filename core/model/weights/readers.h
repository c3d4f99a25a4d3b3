// These are the readers of this folder and what they share; the table in open_weights.cc lists them.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "tenon/core/weights.h"

namespace tenon::weights {

bool claims_gguf(const std::string& path);
std::unique_ptr<Weights> open_gguf(const std::string& path, const WeightsOptions& options);

bool claims_safetensors(const std::string& path);
std::unique_ptr<Weights> open_safetensors(const std::string& path, const WeightsOptions& options);

bool claims_synthetic(const std::string& path);
std::unique_ptr<Weights> open_synthetic(const std::string& path, const WeightsOptions& options);

// This names one of several files that make up a model: "<stem>-00002-of-00003<extension>".
struct PartName {
  std::string stem;
  uint32_t number = 0;  // files count from 1
  uint32_t count = 0;

  // Returns nullopt for a name of another form, and for a number of 0 or beyond the count.
  static std::optional<PartName> parse(const std::filesystem::path& path);
  // Returns the name of part `which` with the extension given, such as ".gguf".
  std::string file_name(uint32_t which, const std::string& extension) const;
};

}  // namespace tenon::weights
