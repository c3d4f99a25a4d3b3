// Each triangle of the draw lists is filled pixel by pixel: a pixel belongs to it if its centre lies within, and its
// colour and texture are interpolated and blended over what is there.
#include "ui/raster.h"

#include <stb/stb_image_write.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tenon/core/error.h"

namespace tenon::view {
namespace {

struct Texture {
  const unsigned char* alpha = nullptr;
  int width = 0, height = 0;

  // Returns the value of the nearest texel.
  float at(float u, float v) const {
    const int x = std::clamp(static_cast<int>(u), 0, width - 1), y = std::clamp(static_cast<int>(v), 0, height - 1);
    return static_cast<float>(alpha[y * width + x]);
  }
};

struct Rectangle {
  int left, top, right, bottom;
};

struct Colour {
  float r, g, b, a;
};

Colour unpack(ImU32 c) {
  return {static_cast<float>(c & 0xFFU), static_cast<float>(c >> 8U & 0xFFU), static_cast<float>(c >> 16U & 0xFFU),
          static_cast<float>(c >> 24U)};
}

void blend(uint32_t& pixel, const Colour& c, float coverage) {
  const float share = c.a * coverage / 255;
  const Colour under = unpack(pixel);
  const auto mixed = [share](float below, float above) {
    return static_cast<uint32_t>(below + (above - below) * share + 0.5F);
  };
  pixel = mixed(under.r, c.r) | mixed(under.g, c.g) << 8U | mixed(under.b, c.b) << 16U | 0xFF000000U;
}

struct Triangle {
  const ImDrawVert &a, &b, &c;  // corners: a position in pixels, a place in the texture from 0 to 1, a colour
};

// Fills the pixels whose centre lies within; one on an edge belongs to one of the two triangles that share it.
void fill(Image& image, const Texture& texture, const Rectangle& clip, const Triangle& triangle) {
  const auto& [a, b, c] = triangle;
  const float area = (b.pos.x - a.pos.x) * (c.pos.y - a.pos.y) - (b.pos.y - a.pos.y) * (c.pos.x - a.pos.x);
  if (area == 0 || !std::isfinite(area)) return;
  if (area < 0) return fill(image, texture, clip, {a, c, b});
  const auto [x0, x1] = std::minmax({a.pos.x, b.pos.x, c.pos.x});
  const auto [y0, y1] = std::minmax({a.pos.y, b.pos.y, c.pos.y});
  const auto limit = [](float v, int low, int high) {
    return static_cast<int>(std::clamp(v, static_cast<float>(low), static_cast<float>(high)));
  };
  const int left = limit(std::floor(x0), clip.left, clip.right), right = limit(std::ceil(x1), clip.left, clip.right);
  const int top = limit(std::floor(y0), clip.top, clip.bottom), bottom = limit(std::ceil(y1), clip.top, clip.bottom);
  const Colour ca = unpack(a.col), cb = unpack(b.col), cc = unpack(c.col);
  const auto edge = [](const ImVec2& p, const ImVec2& q, float x, float y) {
    return (q.x - p.x) * (y - p.y) - (q.y - p.y) * (x - p.x);
  };
  const auto owns = [](const ImVec2& p, const ImVec2& q) { return q.y < p.y || (q.y == p.y && q.x > p.x); };
  const auto inside = [](float value, bool owned) { return value > 0 || (value == 0 && owned); };
  const bool own_a = owns(b.pos, c.pos), own_b = owns(c.pos, a.pos), own_c = owns(a.pos, b.pos);
  for (int y = top; y < bottom; ++y) {
    for (int x = left; x < right; ++x) {
      const float px = static_cast<float>(x) + 0.5F, py = static_cast<float>(y) + 0.5F;
      const float ea = edge(b.pos, c.pos, px, py), eb = edge(c.pos, a.pos, px, py), ec = edge(a.pos, b.pos, px, py);
      if (!inside(ea, own_a) || !inside(eb, own_b) || !inside(ec, own_c)) continue;
      const float wa = ea / area, wb = eb / area, wc = ec / area;
      const float u = (wa * a.uv.x + wb * b.uv.x + wc * c.uv.x) * static_cast<float>(texture.width);
      const float v = (wa * a.uv.y + wb * b.uv.y + wc * c.uv.y) * static_cast<float>(texture.height);
      const float alpha = texture.at(u, v);
      if (alpha == 0) continue;
      const Colour colour{wa * ca.r + wb * cb.r + wc * cc.r, wa * ca.g + wb * cb.g + wc * cc.g,
                          wa * ca.b + wb * cb.b + wc * cc.b, wa * ca.a + wb * cb.a + wc * cc.a};
      blend(image.pixels[static_cast<size_t>(y) * static_cast<size_t>(image.width) + static_cast<size_t>(x)], colour,
            alpha / 255);
    }
  }
}

}  // namespace

Image rasterise(const ImDrawData& data, ImU32 background) {
  Image image{static_cast<int>(data.DisplaySize.x), static_cast<int>(data.DisplaySize.y), {}};
  image.pixels.assign(static_cast<size_t>(image.width) * static_cast<size_t>(image.height), background | 0xFF000000U);
  Texture texture;
  unsigned char* alpha = nullptr;
  ImGui::GetIO().Fonts->GetTexDataAsAlpha8(&alpha, &texture.width, &texture.height);
  texture.alpha = alpha;
  for (int l = 0; l < data.CmdListsCount; ++l) {
    const ImDrawList& list = *data.CmdLists[l];
    for (const ImDrawCmd& command : list.CmdBuffer) {
      if (command.UserCallback != nullptr) continue;
      const auto inside = [](float v, int high) {
        return static_cast<int>(std::clamp(v, 0.0F, static_cast<float>(high)));
      };
      const Rectangle clip{inside(command.ClipRect.x, image.width), inside(command.ClipRect.y, image.height),
                           inside(command.ClipRect.z, image.width), inside(command.ClipRect.w, image.height)};
      const ImDrawIdx* index = list.IdxBuffer.Data + command.IdxOffset;
      const ImDrawVert* vertex = list.VtxBuffer.Data + command.VtxOffset;
      for (unsigned i = 0; i + 2 < command.ElemCount; i += 3) {
        fill(image, texture, clip, {vertex[index[i]], vertex[index[i + 1]], vertex[index[i + 2]]});
      }
    }
  }
  return image;
}

void write_png(const Image& image, const std::string& path) {
  const int stride = image.width * 4;
  if (stbi_write_png(path.c_str(), image.width, image.height, 4, image.pixels.data(), stride) == 0) {
    throw Error(ErrorCode::kIo, {path}, std::string("cannot write this picture: ") + std::strerror(errno));
  }
}

}  // namespace tenon::view
