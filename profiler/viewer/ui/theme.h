// A theme has colours and sizes.
#pragma once

#include <imgui.h>

#include <array>

#include "model/work.h"

namespace tenon::view {

struct Theme {
  bool dark = true;
  float scale = 1;  // it is the display's
  ImU32 text = 0, dim = 0, background = 0, panel = 0, line = 0, warning = 0, selection = 0, good = 0, bad = 0;
  std::array<ImU32, kWorks> work{};

  ImU32 of(Work w) const { return work[static_cast<size_t>(w)]; }
  float px(float size) const { return size * scale; }
};

Theme make_theme(bool dark, float scale);
// Sets the style of the current ImGui context.
void apply(const Theme& theme);
// Adds the fonts, the system's DejaVu if it is there. To be called once for a context. Each is drawn in its own size
// only, so that the nearest texel is the right one.
void add_fonts(float scale);
ImFont* mono_font();
ImFont* small_font();  // it has Latin letters only
ImFont* title_font();  // it has Latin letters only

// Returns a steady, muted colour for a name.
ImU32 colour_of(uint32_t name, const Theme& theme);
// Black or white, whichever can be read on it.
ImU32 text_on(ImU32 background);
// Returns the colour of a value from nothing (0) to all (1).
ImU32 heat_colour(float value, const Theme& theme);

}  // namespace tenon::view
