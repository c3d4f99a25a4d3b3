// run() draws a frame after each input and while a key is held or a file is read, else four times a second. Files are
// read and analysed by a thread beside it, one after the other, so that the window goes on. measure() draws frames as
// fast as they come and prints how long they took.
#include "window.h"

#include <backends/imgui_impl_glfw.h>
#include <backends/imgui_impl_opengl3.h>
#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <deque>
#include <filesystem>
#include <future>

#include "recent.h"
#include "tenon/core/error.h"
#include "ui/raster.h"
#include "ui/views.h"

namespace tenon::view {
namespace {

using Clock = std::chrono::steady_clock;
using ClearColour = void (*)(float, float, float, float);
using Clear = void (*)(unsigned);
using Viewport = void (*)(int, int, int, int);
using Finish = void (*)();
using BindTexture = void (*)(unsigned, unsigned);
using TextureParameter = void (*)(unsigned, unsigned, int);
constexpr unsigned kColourBuffer = 0x4000;  // it is GL_COLOR_BUFFER_BIT
constexpr unsigned kTexture2d = 0x0DE1, kMagnify = 0x2800, kMinify = 0x2801;
constexpr int kNearest = 0x2600;

std::string last_error;

class Window {
 public:
  Window(App& app, const WindowOptions& options);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  void open(const std::string& path) { waiting_.push_back(path); }
  void run();

 private:
  void load();
  void frame();
  void new_frame();
  void answer();
  void set_scale(float scale);
  void measure();
  void save_picture();

  App& app_;
  WindowOptions options_;
  GLFWwindow* window_ = nullptr;
  ClearColour clear_colour_ = nullptr;
  Clear clear_ = nullptr;
  Viewport viewport_ = nullptr;
  Finish finish_ = nullptr;
  BindTexture bind_texture_ = nullptr;
  TextureParameter texture_parameter_ = nullptr;
  std::deque<std::string> waiting_;
  struct Press {
    int key, modifiers;
  };
  std::vector<Press> presses_;  // these came since the last frame
  std::string loading_;
  std::future<std::shared_ptr<const Document>> file_;
  Clock::time_point load_start_;
  double load_s_ = 0;
  bool fonts_ready_ = false;
  bool filtered_ = true;  // true: the fonts' texture is as ImGui makes it
};

Window::Window(App& app, const WindowOptions& options) : app_(app), options_(options) {
  glfwSetErrorCallback([](int, const char* text) { last_error = text; });
  if (glfwInit() == 0)
    throw Error(ErrorCode::kIo, "no window can be opened: " + last_error + "; --screenshot needs none");
  glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
  glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 0);
  window_ = glfwCreateWindow(options.width, options.height, "tenon-view", nullptr, nullptr);
  if (window_ == nullptr) {
    glfwTerminate();
    throw Error(ErrorCode::kIo, "no window with OpenGL 3 can be opened: " + last_error + "; --screenshot needs none");
  }
  glfwMakeContextCurrent(window_);
  glfwSwapInterval(options.measure_frames > 0 ? 0 : 1);
  clear_colour_ = reinterpret_cast<ClearColour>(glfwGetProcAddress("glClearColor"));
  clear_ = reinterpret_cast<Clear>(glfwGetProcAddress("glClear"));
  viewport_ = reinterpret_cast<Viewport>(glfwGetProcAddress("glViewport"));
  finish_ = reinterpret_cast<Finish>(glfwGetProcAddress("glFinish"));
  bind_texture_ = reinterpret_cast<BindTexture>(glfwGetProcAddress("glBindTexture"));
  texture_parameter_ = reinterpret_cast<TextureParameter>(glfwGetProcAddress("glTexParameteri"));
  glfwSetWindowUserPointer(window_, this);
  glfwSetDropCallback(window_, [](GLFWwindow* w, int n, const char** paths) {
    for (int i = 0; i < n; ++i) static_cast<Window*>(glfwGetWindowUserPointer(w))->open(paths[i]);
  });
  // A key that went down and up between two frames is held for one of them.
  glfwSetKeyCallback(window_, [](GLFWwindow* w, int key, int, int action, int modifiers) {
    if (action == GLFW_PRESS && key >= 0)
      static_cast<Window*>(glfwGetWindowUserPointer(w))->presses_.push_back({key, modifiers});
  });
  ImGui::CreateContext();
  ImGui::GetIO().IniFilename = nullptr;
  ImGui_ImplGlfw_InitForOpenGL(window_, true);
  ImGui_ImplOpenGL3_Init("#version 130");
  float scale = options.scale;
  if (scale <= 0) glfwGetWindowContentScale(window_, &scale, nullptr);
  set_scale(scale);
}

Window::~Window() {
  ImGui_ImplOpenGL3_Shutdown();
  ImGui_ImplGlfw_Shutdown();
  ImGui::DestroyContext();
  glfwDestroyWindow(window_);
  glfwTerminate();
}

void Window::set_scale(float scale) {
  app_.theme = make_theme(app_.theme.dark, std::clamp(scale, 0.5F, 4.0F));
  apply(app_.theme);
  ImGui::GetIO().Fonts->Clear();
  add_fonts(app_.theme.scale);
  if (fonts_ready_) ImGui_ImplOpenGL3_DestroyFontsTexture();
  if (fonts_ready_) ImGui_ImplOpenGL3_CreateFontsTexture();
  fonts_ready_ = true;
  filtered_ = true;
}

// Files are read beside the frames, one after the other.
void Window::load() {
  if (file_.valid()) {
    if (file_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
    app_.message.clear();
    app_.reads_file = false;
    try {
      load_s_ = std::chrono::duration<double>(Clock::now() - load_start_).count();
      add_document(app_, file_.get());
      remember_file(loading_);
    } catch (const Error& error) {
      app_.message = error.what();
    }
    app_.recent = recent_files();
  }
  if (waiting_.empty()) return;
  loading_ = waiting_.front();
  waiting_.pop_front();
  app_.message = "reading " + loading_;
  app_.reads_file = true;
  load_start_ = Clock::now();
  file_ = std::async(std::launch::async,
                     [path = loading_] { return std::make_shared<const Document>(profiler::read_trace(path)); });
}

void Window::new_frame() {
  ImGui_ImplOpenGL3_NewFrame();
  ImGui_ImplGlfw_NewFrame();
  if (std::exchange(filtered_, false)) {  // in software, mixing four texels for every pixel takes a third of a frame
    bind_texture_(kTexture2d, static_cast<unsigned>(reinterpret_cast<uintptr_t>(ImGui::GetIO().Fonts->TexID)));
    for (const unsigned filter : {kMagnify, kMinify}) texture_parameter_(kTexture2d, filter, kNearest);
  }
}

void Window::frame() {
  new_frame();
  ImGuiIO& io = ImGui::GetIO();
  const bool control = io.KeyCtrl;
  for (const Press& press : presses_) {
    io.KeysDown[press.key] = true;
    io.KeyCtrl |= (press.modifiers & GLFW_MOD_CONTROL) != 0;
  }
  ImGui::NewFrame();
  draw(app_);
  ImGui::Render();
  for (const Press& press : presses_) io.KeysDown[press.key] = glfwGetKey(window_, press.key) == GLFW_PRESS;
  io.KeyCtrl = control;
  presses_.clear();
  int width = 0, height = 0;
  glfwGetFramebufferSize(window_, &width, &height);
  viewport_(0, 0, width, height);
  const ImVec4 c = ImGui::ColorConvertU32ToFloat4(app_.theme.background);
  clear_colour_(c.x, c.y, c.z, 1);
  clear_(kColourBuffer);
  ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
  glfwSwapBuffers(window_);
}

void Window::save_picture() {
  const std::string name = std::string("tenon-view-") + kViewNames[static_cast<size_t>(app_.view)].option + ".png";
  try {
    write_png(rasterise(*ImGui::GetDrawData(), app_.theme.background), name);
    app_.message = "saved " + std::filesystem::absolute(name).string();
  } catch (const Error& error) {
    app_.message = error.what();
  }
}

void Window::answer() {
  if (!app_.wants_open.empty()) open(std::exchange(app_.wants_open, {}));
  if (app_.wants_quit) glfwSetWindowShouldClose(window_, 1);
  if (std::exchange(app_.wants_picture, false)) save_picture();
  if (std::exchange(app_.wants_theme, false)) {
    app_.theme = make_theme(!app_.theme.dark, app_.theme.scale);
    apply(app_.theme);
  }
  if (app_.wants_scale > 0) set_scale(app_.theme.scale * std::exchange(app_.wants_scale, 0.0F));
}

// Zooms from all of the trace down to microseconds and back while moving, every frame drawn anew.
void Window::measure() {
  std::vector<double> build_ms, frame_ms, cpu_ms;
  const TraceFile& file = app_.document().file;
  const auto length = static_cast<double>(file.end_ns - file.begin_ns);
  for (int i = 0; i < options_.measure_frames; ++i) {
    const double phase = static_cast<double>(i) / options_.measure_frames;
    const double width = length * std::pow(1e-5, std::sin(phase * 3.14159265));
    const double from = (length - width) * phase;
    show_range(app_.timeline(), from, from + width);
    const auto start = Clock::now();
    const std::clock_t cpu = std::clock();
    glfwPollEvents();
    new_frame();
    ImGui::NewFrame();
    draw(app_);
    ImGui::Render();
    const auto built = Clock::now();
    ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
    glfwSwapBuffers(window_);
    finish_();
    cpu_ms.push_back(1e3 * static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC);
    build_ms.push_back(std::chrono::duration<double, std::milli>(built - start).count());
    frame_ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  const auto at = [](std::vector<double>& values, double q) {
    std::ranges::sort(values);
    return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
  };
  std::printf("%llu events read in %.2f s, %.0f bytes each in memory\n", static_cast<unsigned long long>(file.n_events),
              load_s_, static_cast<double>(file.bytes()) / static_cast<double>(std::max<uint64_t>(1, file.n_events)));
  const auto print = [&](const char* what, std::vector<double>& ms) {
    std::printf("%-28s p50 %6.2f ms, p99 %6.2f ms, longest %6.2f ms\n", what, at(ms, 0.5), at(ms, 0.99), at(ms, 1));
  };
  std::printf("%d frames\n", options_.measure_frames);
  print("whole", frame_ms);
  print("of that building", build_ms);
  print("processor time, all threads", cpu_ms);
}

void Window::run() {
  constexpr double kIdle = 0.25;
  int awake = 3;
  while (glfwWindowShouldClose(window_) == 0) {
    // Without input there is nothing to draw anew; a held key, an input or a file that is read keeps frames coming.
    const bool busy = file_.valid() || !waiting_.empty() || ImGui::IsAnyMouseDown() || ImGui::GetIO().WantTextInput ||
                      std::ranges::any_of(ImGui::GetIO().KeysDown, [](bool down) { return down; });
    if (busy || awake > 0) {
      glfwPollEvents();
      --awake;
    } else {
      const auto start = Clock::now();
      glfwWaitEventsTimeout(kIdle);
      if (Clock::now() - start < std::chrono::duration<double>(kIdle)) awake = 3;
    }
    load();
    if (options_.measure_frames > 0 && !app_.documents.empty()) return measure();
    frame();
    answer();
    if (options_.measure_frames > 0 && !file_.valid() && waiting_.empty()) throw Error(ErrorCode::kIo, app_.message);
  }
}

}  // namespace

void run_window(App& app, const std::vector<std::string>& files, const WindowOptions& options) {
  app.recent = recent_files();
  Window window(app, options);
  for (const std::string& file : files) window.open(file);
  window.run();
}

}  // namespace tenon::view
