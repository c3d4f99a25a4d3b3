// Debian has no archive of ISA-L, and a tenon that is carried elsewhere has to start without it: so it is loaded.
#include <dlfcn.h>
#include <isa-l/igzip_lib.h>

#include <array>
#include <vector>

#include "deflate.h"

namespace tenon::profiler {
namespace {

struct Isal {
  decltype(&isal_deflate_init) init = nullptr;
  decltype(&isal_deflate) deflate = nullptr;

  Isal() {
    void* library = dlopen("libisal.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    init = reinterpret_cast<decltype(init)>(dlsym(library, "isal_deflate_init"));
    deflate = reinterpret_cast<decltype(deflate)>(dlsym(library, "isal_deflate"));
  }
  bool there() const { return init != nullptr && deflate != nullptr; }
};
const Isal& isal() {
  static const Isal loaded;  // it is never unloaded
  return loaded;
}

class IsalDeflate final : public Deflate {
 public:
  IsalDeflate() : level_buffer_(ISAL_DEF_LVL1_DEFAULT) {
    isal().init(&stream_);
    stream_.level = 1;
    stream_.level_buf = level_buffer_.data();
    stream_.level_buf_size = static_cast<uint32_t>(level_buffer_.size());
    stream_.gzip_flag = IGZIP_DEFLATE;
  }

  void run(std::string_view bytes, Mode mode, const Put& put) override {
    std::array<char, 1U << 16U> out;
    stream_.flush = mode == Mode::kGoOn ? NO_FLUSH : SYNC_FLUSH;
    stream_.end_of_stream = mode == Mode::kEnd ? 1 : 0;
    stream_.next_in = const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(bytes.data()));  // it reads it only
    stream_.avail_in = static_cast<uint32_t>(bytes.size());
    do {
      stream_.next_out = reinterpret_cast<uint8_t*>(out.data());
      stream_.avail_out = static_cast<uint32_t>(out.size());
      isal().deflate(&stream_);
      put({out.data(), out.size() - stream_.avail_out});
    } while (stream_.avail_out == 0);
  }

 private:
  isal_zstream stream_{};
  std::vector<uint8_t> level_buffer_;
};

}  // namespace

std::unique_ptr<Deflate> make_isal_deflate() {
  if (!isal().there()) return nullptr;
  return std::make_unique<IsalDeflate>();
}

}  // namespace tenon::profiler
