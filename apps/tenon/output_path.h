// No command writes over what it reads.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace tenon::app {

// Throws Error(kUsage) where `output` is there and is one of the inputs, or a file of an input that is a folder, by
// whatever name or link. Inputs that are no files ("synthetic:NAME", "") are passed over.
void refuse_input_as_output(const std::filesystem::path& output, std::span<const std::string> inputs);

}  // namespace tenon::app
