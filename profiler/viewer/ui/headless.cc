#include "ui/headless.h"

#include <cstring>

namespace tenon::view {

Headless::Headless(int width, int height, float scale) : context_(ImGui::CreateContext()) {
  ImGui::SetCurrentContext(context_);
  ImGuiIO& io = ImGui::GetIO();
  io.IniFilename = nullptr;
  io.DisplaySize = {static_cast<float>(width), static_cast<float>(height)};
  io.DeltaTime = 1.0F / 60;
  io.BackendFlags |= ImGuiBackendFlags_RendererHasVtxOffset;
  add_fonts(scale);
  unsigned char* pixels = nullptr;
  int w = 0, h = 0;
  io.Fonts->GetTexDataAsAlpha8(&pixels, &w, &h);
}

Headless::~Headless() {
  ImGui::DestroyContext(context_);
}

void Headless::frame(App& app, const Input& input) {
  ImGui::SetCurrentContext(context_);
  apply(app.theme);
  ImGuiIO& io = ImGui::GetIO();
  io.MousePos = input.mouse.x < 0 ? ImVec2(-FLT_MAX, -FLT_MAX) : input.mouse;
  io.MouseDown[0] = input.button;
  io.MouseWheel = input.wheel;
  std::memset(io.KeysDown, 0, sizeof(io.KeysDown));
  if (input.key > 0) io.KeysDown[input.key] = true;
  ImGui::NewFrame();
  draw(app);
  ImGui::Render();
}

uint64_t Headless::vertex_hash() const {
  ImGui::SetCurrentContext(context_);
  const ImDrawData& data = *ImGui::GetDrawData();
  uint64_t hash = 0xCBF29CE484222325U;
  const auto add = [&hash](const void* bytes, size_t size) {
    const auto* at = static_cast<const unsigned char*>(bytes);
    for (size_t i = 0; i < size; ++i) hash = (hash ^ at[i]) * 0x100000001B3U;
  };
  for (int l = 0; l < data.CmdListsCount; ++l) {
    const ImDrawList& list = *data.CmdLists[l];
    add(list.VtxBuffer.Data, static_cast<size_t>(list.VtxBuffer.size_in_bytes()));
    add(list.IdxBuffer.Data, static_cast<size_t>(list.IdxBuffer.size_in_bytes()));
  }
  return hash;
}

size_t Headless::vertices() const {
  ImGui::SetCurrentContext(context_);
  return static_cast<size_t>(ImGui::GetDrawData()->TotalVtxCount);
}

Image Headless::picture(const App& app) const {
  ImGui::SetCurrentContext(context_);
  return rasterise(*ImGui::GetDrawData(), app.theme.background);
}

}  // namespace tenon::view
