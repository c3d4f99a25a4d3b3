// The program tenon-view shows a trace in a window, or one of its views as a picture.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "tenon/core/error.h"
#include "ui/headless.h"
#include "ui/views.h"
#include "window.h"

namespace {

using namespace tenon::view;

struct Options {
  std::vector<std::string> files;
  std::string screenshot, view, phase, search, size = "1600x900";
  double bandwidth = 0;
  float scale = 0;
  bool light = false, by_share = false;
  int measure_frames = 0;
};

void parse(CLI::App& cli, Options& o) {
  std::vector<std::string> views;
  for (const ViewName& name : kViewNames) views.emplace_back(name.option);
  cli.set_version_flag("--version", TENON_VERSION);
  cli.add_option("FILE", o.files, "traces: .json, .json.gz; the first two can be compared")->check(CLI::ExistingFile);
  cli.add_option("--view", o.view, "the view to begin with")->check(CLI::IsMember(views));
  cli.add_option("--screenshot", o.screenshot, "write the view as a PNG, without a window, and end")->type_name("PNG");
  cli.add_option("--size", o.size, "of the window or the picture")->type_name("WIDTHxHEIGHT")->capture_default_str();
  cli.add_option("--steps", o.phase, "which steps the tables are about")
      ->check(CLI::IsMember({"all", "prefill", "decode"}));
  cli.add_option("--search", o.search, "go to the first slice whose name or arguments contain it")->type_name("TEXT");
  cli.add_option("--bandwidth", o.bandwidth, "GB/s that the memory can do, where the trace does not say")
      ->check(CLI::PositiveNumber);
  cli.add_flag("--share", o.by_share, "the heat map of shares of the step instead of GB/s");
  cli.add_option("--scale", o.scale, "of texts; by itself the display's")->check(CLI::Range(0.5, 4.0));
  cli.add_flag("--light", o.light, "light colours");
  cli.add_option("--measure-frames", o.measure_frames,
                 "draw so many frames of the timeline and print how long they took")
      ->check(CLI::PositiveNumber);
}

void run(const Options& o) {
  int width = 0, height = 0;
  if (std::sscanf(o.size.c_str(), "%dx%d", &width, &height) != 2 || width < 200 || height < 150 || width > 16384 ||
      height > 16384) {
    throw tenon::Error(tenon::ErrorCode::kUsage,
                       "--size " + o.size + ": WIDTHxHEIGHT belongs there, from 200x150 to 16384x16384");
  }
  App app(!o.light, o.scale > 0 ? o.scale : 1);
  if (o.bandwidth > 0) app.bandwidth = o.bandwidth;
  app.heat_by_share = o.by_share;
  const auto prepare = [&] {
    if (!o.phase.empty())
      app.phase = o.phase == "all" ? Phase::kAll : o.phase == "prefill" ? Phase::kPrefill : Phase::kDecode;
    if (!o.view.empty()) app.view = *view_of(o.view);
  };
  if (o.screenshot.empty()) {
    prepare();
    return run_window(app, o.files, {width, height, o.scale, o.measure_frames});
  }
  for (const std::string& file : o.files)
    add_document(app, std::make_shared<const Document>(tenon::profiler::read_trace(file)));
  if (!app.documents.empty()) app.current = 0;
  prepare();
  Headless headless(width, height, app.theme.scale);
  headless.frame(app);
  if (!o.search.empty() && !app.documents.empty()) {
    o.search.copy(app.search_text.data(), app.search_text.size() - 1);
    search_from(app, 1);
  }
  for (int i = 0; i < 3; ++i) headless.frame(app);  // tables and scrolled windows find their sizes
  write_png(headless.picture(app), o.screenshot);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App cli("Looks at traces: what each step, token, layer and operation costs.", "tenon-view");
  Options options;
  parse(cli, options);
  CLI11_PARSE(cli, argc, argv);
  try {
    run(options);
  } catch (const tenon::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.code() == tenon::ErrorCode::kUsage ? 2 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
