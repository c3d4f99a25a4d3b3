// This is the viewer without a window: frames of a given size and input, for pictures and tests.
#pragma once

#include <cstdint>

#include "ui/app.h"
#include "ui/raster.h"

namespace tenon::view {

struct Input {
  ImVec2 mouse{-1, -1};
  bool button = false;
  float wheel = 0;
  int key = 0;  // held; 0 = none
};

class Headless {
 public:
  Headless(int width, int height, float scale);
  ~Headless();
  Headless(const Headless&) = delete;
  Headless& operator=(const Headless&) = delete;

  // Draws one frame of a sixtieth of a second.
  void frame(App& app, const Input& input = {});

  // Returns a hash of the last frame's vertices.
  uint64_t vertex_hash() const;
  size_t vertices() const;
  Image picture(const App& app) const;

 private:
  ImGuiContext* context_;
};

}  // namespace tenon::view
