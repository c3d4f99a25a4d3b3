#include "deflate.h"

#include <zlib.h>

#include <array>

namespace tenon::profiler {
namespace {

constexpr int kRawDeflate = -15;
constexpr int kLevel = 1;  // if all cores compute, the thread that writes slows down those that record

class ZlibDeflate final : public Deflate {
 public:
  ZlibDeflate() : good_(deflateInit2(&stream_, kLevel, Z_DEFLATED, kRawDeflate, 8, Z_DEFAULT_STRATEGY) == Z_OK) {}
  ~ZlibDeflate() override {
    if (good_) deflateEnd(&stream_);
  }
  ZlibDeflate(const ZlibDeflate&) = delete;
  ZlibDeflate& operator=(const ZlibDeflate&) = delete;

  bool good() const { return good_; }

  void run(std::string_view bytes, Mode mode, const Put& put) override {
    const int flush = mode == Mode::kGoOn ? Z_NO_FLUSH : mode == Mode::kFlush ? Z_SYNC_FLUSH : Z_FINISH;
    std::array<char, 1U << 16U> out;
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));  // zlib reads it only
    stream_.avail_in = static_cast<uInt>(bytes.size());
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(out.data());
      stream_.avail_out = static_cast<uInt>(out.size());
      deflate(&stream_, flush);
      put({out.data(), out.size() - stream_.avail_out});
    } while (stream_.avail_out == 0);
  }

 private:
  z_stream stream_{};
  bool good_;
};

}  // namespace

std::unique_ptr<Deflate> make_zlib_deflate() {
  auto deflate = std::make_unique<ZlibDeflate>();
  if (!deflate->good()) return nullptr;
  return deflate;
}

}  // namespace tenon::profiler
