// The timeline is made of these besides its tracks.
#pragma once

#include <string>

#include "model/fold.h"
#include "ui/app.h"

namespace tenon::view {

// Marks that are a round number of nanoseconds apart.
struct RulerSteps {
  double ns = 1;
  double unit_ns = 1;  // it is the unit of the texts
  const char* unit = "ns";
  int decimals = 0;
};
// Returns the least such steps of at least `least_ns`.
RulerSteps ruler_steps(double least_ns);
std::string ruler_text(double ns, const RulerSteps& steps);

// Draws a tooltip.
void describe_box(const App& app, const Document& document, const Box& box);
// Draws the panel below: the selected slice with its arguments, the selected area's sums, the search's results.
void draw_details(App& app);

}  // namespace tenon::view
