// ImGui's draw lists as pixels, without a GPU or a window.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tenon::view {

struct Image {
  int width = 0, height = 0;
  std::vector<uint32_t> pixels;  // (height, width) R G B A bytes
};

// The font atlas must be built; every draw command must use it as its texture.
Image rasterise(const ImDrawData& data, ImU32 background);

// Throws Error(kIo).
void write_png(const Image& image, const std::string& path);

}  // namespace tenon::view
