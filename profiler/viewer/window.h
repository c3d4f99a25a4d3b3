// This is the viewer in a window: GLFW and OpenGL 3.
#pragma once

#include <string>
#include <vector>

#include "ui/app.h"

namespace tenon::view {

struct WindowOptions {
  int width = 1600, height = 900;
  float scale = 0;         // 0: the display's
  int measure_frames = 0;  // it draws so many while zooming and moving, prints how long they took, and ends
};

// Returns when the window is closed; `files` are loaded once it is open. Throws Error(kIo) if there is no display or no
// OpenGL.
void run_window(App& app, const std::vector<std::string>& files, const WindowOptions& options);

}  // namespace tenon::view
