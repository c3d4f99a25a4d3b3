// This recorder hands on what it is told, but adds something to every op's work.
#pragma once

#include "tenon/sdk/recorder.h"

namespace tenon::bad {

// `bad` is called after each part of an op, with the op as it was recorded.
class SpoiltRecorder {
 public:
  using Bad = void (*)(const tenon_part& part);

  SpoiltRecorder(const sdk::Recorder& r, Bad bad) : inner_(r.raw()), spoilt_(*inner_) {
    bad_ = bad;
    spoilt_.ctx = this;
    spoilt_.temp = [](void* c, const tenon_tensor* t) { return of(c).temp(of(c).ctx, t); };
    spoilt_.keep = [](void* c, const tenon_tensor* t, const char* key) { return of(c).keep(of(c).ctx, t, key); };
    spoilt_.slice = [](void* c, tenon_tid tensor, const tenon_tensor* t, uint64_t offset) {
      return of(c).slice(of(c).ctx, tensor, t, offset);
    };
    spoilt_.step = [](void* c, uint32_t role) { return of(c).step(of(c).ctx, role); };
    spoilt_.describe = [](void* c, tenon_tid id, tenon_tensor* out) { of(c).describe(of(c).ctx, id, out); };
    spoilt_.emit = [](void* c, const tenon_op* op) {
      tenon_op worse = *op;
      good_ = op->part;
      worse.part = [](void* self, const void* args, const tenon_part* part) {
        const tenon_status status = good_(self, args, part);
        bad_(*part);
        return status;
      };
      return of(c).emit(of(c).ctx, &worse);
    };
  }
  sdk::Recorder recorder() const { return sdk::Recorder(&spoilt_); }

 private:
  static const tenon_recorder& of(void* ctx) { return *static_cast<SpoiltRecorder*>(ctx)->inner_; }

  // These are of one op at a time: the plugins that use this record no more.
  static inline Bad bad_ = nullptr;
  static inline decltype(tenon_op::part) good_ = nullptr;
  const tenon_recorder* inner_;
  tenon_recorder spoilt_;
};

}  // namespace tenon::bad
