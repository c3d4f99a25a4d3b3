// A cache is a class T that derives from KvCache<T>; tenon/abi/kv_cache.h says what its functions owe. T has
//   tenon_kv_view claim(const tenon_kv_geometry&, const tenon_bounds&);        throw Refused("why") to decline
//   tenon_footprint plan(std::span<const tenon_kv_geometry>, const tenon_bounds&);
//   void attach(void* const* store, void* queue);
//   tenon_kv_view view(uint32_t layer, const tenon_tid* store, Recorder&);
//   void record_begin(const tenon_tid* store, Recorder&);                      optional
//   void record_append(uint32_t layer, const tenon_tid* store, tenon_tid k, tenon_tid v, Recorder&);
//   void record_choice(uint32_t layer, const tenon_tid* store, tenon_tid q, Recorder&);         optional: if a view has spans
//   tenon_kv_view record_dequant(uint32_t layer, const tenon_tid* store, const tenon_kv_format& want, Recorder&);
//   void record_commit(const tenon_tid* store, Recorder&);
//   void reserve(uint32_t slot, uint32_t kv_len);                              throw NoSpace("why")
//   void fork(uint32_t from, uint32_t to, uint32_t kv_len, void* queue);
//   void truncate(uint32_t slot, uint32_t kv_len);
//   void publish(void* queue);
//   uint64_t export_sequence(uint32_t slot, uint32_t kv_len, void* queue, void* dst);
//   void import_sequence(uint32_t slot, uint32_t kv_len, void* queue, const void* src, uint64_t bytes);
//   uint64_t used_bytes(uint32_t kv_len) const;
//   uint32_t free_pages(uint32_t& page_tokens) const;                          optional: if slots share pages
//   uint32_t find(std::span<const int32_t> tokens, uint32_t& held) const;      optional, all three: what begins alike is shared
//   uint32_t adopt(uint32_t slot, std::span<const int32_t> tokens);
//   void share(uint32_t slot, std::span<const int32_t> tokens);
#pragma once

#include <span>
#include <vector>

#include "tenon/abi/kv_cache.h"
#include "tenon/sdk/component.h"
#include "tenon/sdk/recorder.h"

namespace tenon::sdk {

template <class T>
class KvCache : public ComponentDefaults {
 public:
  static constexpr const char* kKind = "kv_cache";
  static constexpr const char* kInterface = "kv_cache/1";

  static const tenon_kv_cache* table() {
    static constexpr tenon_kv_cache kTable = make();
    return &kTable;
  }

 private:
  static constexpr tenon_kv_cache make() {
    auto t = abi_struct<tenon_kv_cache>();
    t.claim = &call_claim;
    t.plan = &call_plan;
    t.attach = &call_attach;
    t.view = &call_view;
    t.record_append = &call_record_append;
    t.record_dequant = &call_record_dequant;
    t.record_commit = &call_record_commit;
    t.reserve = &call_reserve;
    t.fork = &call_fork;
    t.truncate = &call_truncate;
    t.publish = &call_publish;
    t.export_sequence = &call_export_sequence;
    t.import_sequence = &call_import_sequence;
    t.used_bytes = &call_used_bytes;
    if constexpr (requires { &T::record_begin; }) t.record_begin = &call_record_begin;
    if constexpr (requires { &T::record_choice; }) t.record_choice = &call_record_choice;
    if constexpr (requires { &T::free_pages; }) t.free_pages = &call_free_pages;
    if constexpr (requires { &T::adopt; }) {
      t.find = &call_find;
      t.adopt = &call_adopt;
      t.share = &call_share;
    }
    return t;
  }
  static T& self(void* p) { return *static_cast<T*>(p); }

  static tenon_status call_claim(void* p, const tenon_kv_geometry* g, const tenon_bounds* b, tenon_kv_view* out,
                                 tenon_reason* why) noexcept {
    return guard(why, [&] { write_abi(out, self(p).claim(read_abi(g), read_abi(b))); });
  }
  static tenon_status call_plan(void* p, const tenon_kv_geometry* const* g, uint32_t n, const tenon_bounds* b,
                                tenon_footprint* out, tenon_reason* why) noexcept {
    return guard(why, [&] {
      std::vector<tenon_kv_geometry> layers;
      for (uint32_t i = 0; i < n; ++i) layers.push_back(read_abi(g[i]));
      write_abi(out, self(p).plan(layers, read_abi(b)));
    });
  }
  static tenon_status call_attach(void* p, void* const* store, void* queue, tenon_reason* why) noexcept {
    return guard(why, [&] { self(p).attach(store, queue); });
  }
  static tenon_status call_view(void* p, uint32_t layer, const tenon_kv_stores* s, const tenon_recorder* rec,
                                tenon_kv_view* out, tenon_reason* why) noexcept {
    return guard(why, [&] {
      Recorder r(rec);
      write_abi(out, self(p).view(layer, s->store, r));
    });
  }
  static tenon_status call_record_begin(void* p, const tenon_kv_stores* s, const tenon_recorder* rec,
                                        tenon_reason* why) noexcept {
    return guard(why, [&] {
      Recorder r(rec);
      self(p).record_begin(s->store, r);
    });
  }
  static tenon_status call_record_append(void* p, uint32_t layer, const tenon_kv_stores* s, tenon_tid k, tenon_tid v,
                                         const tenon_recorder* rec, tenon_reason* why) noexcept {
    return guard(why, [&] {
      Recorder r(rec);
      self(p).record_append(layer, s->store, k, v, r);
    });
  }
  static tenon_status call_record_choice(void* p, uint32_t layer, const tenon_kv_stores* s, tenon_tid q,
                                         const tenon_recorder* rec, tenon_reason* why) noexcept {
    return guard(why, [&] {
      Recorder r(rec);
      self(p).record_choice(layer, s->store, q, r);
    });
  }
  static tenon_status call_record_dequant(void* p, uint32_t layer, const tenon_kv_stores* s,
                                          const tenon_kv_format* want, const tenon_recorder* rec, tenon_kv_view* out,
                                          tenon_reason* why) noexcept {
    return guard(why, [&] {
      Recorder r(rec);
      write_abi(out, self(p).record_dequant(layer, s->store, read_abi(want), r));
    });
  }
  static tenon_status call_record_commit(void* p, const tenon_kv_stores* s, const tenon_recorder* rec,
                                         tenon_reason* why) noexcept {
    return guard(why, [&] {
      Recorder r(rec);
      self(p).record_commit(s->store, r);
    });
  }
  static tenon_status call_reserve(void* p, uint32_t slot, uint32_t kv_len, tenon_reason* why) noexcept {
    return guard(why, [&] { self(p).reserve(slot, kv_len); });
  }
  static tenon_status call_fork(void* p, uint32_t from, uint32_t to, uint32_t kv_len, void* queue,
                                tenon_reason* why) noexcept {
    return guard(why, [&] { self(p).fork(from, to, kv_len, queue); });
  }
  static tenon_status call_truncate(void* p, uint32_t slot, uint32_t kv_len, tenon_reason* why) noexcept {
    return guard(why, [&] { self(p).truncate(slot, kv_len); });
  }
  static tenon_status call_publish(void* p, void* queue, tenon_reason* why) noexcept {
    return guard(why, [&] { self(p).publish(queue); });
  }
  static tenon_status call_export_sequence(void* p, uint32_t slot, uint32_t kv_len, void* queue, void* dst,
                                           uint64_t* bytes, tenon_reason* why) noexcept {
    return guard(why, [&] { *bytes = self(p).export_sequence(slot, kv_len, queue, dst); });
  }
  static tenon_status call_import_sequence(void* p, uint32_t slot, uint32_t kv_len, void* queue, const void* src,
                                           uint64_t bytes, tenon_reason* why) noexcept {
    return guard(why, [&] { self(p).import_sequence(slot, kv_len, queue, src, bytes); });
  }
  static uint64_t call_used_bytes(void* p, uint32_t kv_len) noexcept {
    uint64_t bytes = 0;
    static_cast<void>(guard(nullptr, [&] { bytes = self(p).used_bytes(kv_len); }));
    return bytes;
  }
  static uint32_t call_free_pages(void* p, uint32_t* page_tokens) noexcept {
    uint32_t pages = 0;
    static_cast<void>(guard(nullptr, [&] { pages = self(p).free_pages(*page_tokens); }));
    return pages;
  }
  static uint32_t call_find(void* p, const int32_t* tokens, uint32_t n, uint32_t* held) noexcept {
    uint32_t found = 0;
    static_cast<void>(guard(nullptr, [&] { found = self(p).find(std::span(tokens, n), *held); }));
    return found;
  }
  static tenon_status call_adopt(void* p, uint32_t slot, const int32_t* tokens, uint32_t n, uint32_t* kv_len,
                                 tenon_reason* why) noexcept {
    return guard(why, [&] { *kv_len = self(p).adopt(slot, std::span(tokens, n)); });
  }
  static tenon_status call_share(void* p, uint32_t slot, const int32_t* tokens, uint32_t n,
                                 tenon_reason* why) noexcept {
    return guard(why, [&] { self(p).share(slot, std::span(tokens, n)); });
  }
};

}  // namespace tenon::sdk
