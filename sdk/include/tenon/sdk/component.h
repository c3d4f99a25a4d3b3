// TENON_PLUGIN(MyAttention) makes a plugin of a class: at namespace scope of one source file it gives the library its
// note, its one exported symbol and the component's table.
//
// The class derives from the base of its kind (sdk::Attention<MyAttention>, ...) and has
//   static constexpr const char* kName, kDoc;
//   static constexpr auto kParams = sdk::params(...);
//   MyAttention(const sdk::Params&, const sdk::Env&);
//
// docs/glossary.md has the words of these headers.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "tenon/abi/plugin.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/layout.h"
#include "tenon/sdk/params.h"

namespace tenon::sdk {

// This has the host and device that an instance was created for; both outlive it.
class Env {
 public:
  explicit Env(const tenon_env* raw) : host_(raw->host), device_(raw->device), ordinal_(read_abi(raw).ordinal) {}

  const tenon_device& device() const { return *device_; }  // there is none while a device is created
  uint32_t ordinal() const { return ordinal_; }            // the user wants the device with this number
  void log(uint32_t level, const std::string& message) const { host_->log(host_->ctx, level, message.c_str()); }
  // It takes memory beyond the footprints, counted under `purpose`, and throws NoSpace. The instance releases it before
  // it dies.
  void* alloc(uint32_t space, uint64_t bytes, const char* purpose) const {
    void* p = nullptr;
    char text[256] = "";
    tenon_reason why{text, sizeof(text)};
    if (host_->alloc(host_->ctx, space, bytes, purpose, &p, &why) != TENON_OK) throw NoSpace(text);
    return p;
  }
  void release(void* p) const { host_->release(host_->ctx, p); }

 private:
  const tenon_host* host_;
  const tenon_device* device_;
  uint32_t ordinal_;
};

namespace detail {

template <class T>
struct SchemaOf {
  static constexpr auto kSpecs = T::kParams;
  template <size_t... I>
  static constexpr std::array<const tenon_param_spec*, sizeof...(I)> pointers(std::index_sequence<I...>) {
    return {&kSpecs[I]...};
  }
  static constexpr auto kPointers = pointers(std::make_index_sequence<kSpecs.size()>{});
  static constexpr tenon_param_schema kSchema = {
      {sizeof(tenon_param_schema), 1, 0}, static_cast<uint32_t>(kSpecs.size()), 0, kPointers.data()};
};

template <class T>
tenon_status create(const tenon_params* params, const tenon_env* env, void** self, tenon_reason* why) noexcept {
  return guard(why, [&] {
    using Schema = SchemaOf<T>;
    *self = std::make_unique<T>(Params(params, Schema::kSpecs.data(), Schema::kSpecs.size()), Env(env)).release();
  });
}
template <class T>
void destroy(void* self) noexcept {
  delete static_cast<T*>(self);
}
template <class T>
const void* interface(void* self, const char* id) noexcept {
  if (std::string_view(id) != T::kInterface) return nullptr;
  if constexpr (requires { &T::instance_table; }) {
    return static_cast<T*>(self)->instance_table();  // a device: its table holds what was found there
  } else {
    static_cast<void>(self);
    return T::table();
  }
}

template <class T>
constexpr tenon_component component() {
  auto c = abi_struct<tenon_component>();
  c.kind = T::kKind;
  c.name = T::kName;
  c.device = T::kDevice;
  c.doc = T::kDoc;
  c.schema = &SchemaOf<T>::kSchema;
  c.create = &create<T>;
  c.destroy = &destroy<T>;
  c.interface = &interface<T>;
  c.own_rules = T::kOwnRules;
  return c;
}

template <size_t N>
constexpr void copy_text(const char* from, char (&to)[N]) {
  size_t i = 0;
  for (; from[i] != '\0' && i + 1 < N; ++i) to[i] = from[i];
}

template <class T>
constexpr tenon_note_section note() {
  tenon_note_section s{};
  s.owner_bytes = sizeof(TENON_NOTE_OWNER);
  s.descriptor_bytes = sizeof(tenon_note);
  s.type = TENON_NOTE_TYPE;
  copy_text(TENON_NOTE_OWNER, s.owner);
  s.note.abi_major = TENON_ABI_MAJOR;
  s.note.abi_minor = TENON_ABI_MINOR;
  copy_text(T::kKind, s.note.kind);
  copy_text(T::kName, s.note.name);
  copy_text(T::kDevice, s.note.device);
  copy_text(T::kTargets, s.note.targets);
  write_hex(schema_hash(T::kParams.data(), T::kParams.size()), s.note.schema_hash);
  copy_text(layout::of(T::kKind), s.note.layout_hash);
  return s;
}

}  // namespace detail

// tenon_add_plugin() says which device a library is for. So one class may be a plugin for
// several devices, with a source file for each.
struct ComponentDefaults {
  static constexpr const char* kDevice = TENON_PLUGIN_DEVICE;
  static constexpr const char* kTargets = TENON_PLUGIN_TARGETS;
  static constexpr uint32_t kOwnRules = 0;  // TENON_OWN_*: the component does these things otherwise than its kind
};

}  // namespace tenon::sdk

#define TENON_PLUGIN(Class)                                                                                 \
  extern "C" {                                                                                              \
  __attribute__((section(".note.tenon"), used, aligned(4))) extern const tenon_note_section tenon_note_v1 = \
      ::tenon::sdk::detail::note<Class>();                                                                  \
  static constexpr tenon_component tenon_component_v1 = ::tenon::sdk::detail::component<Class>();           \
  static constexpr const tenon_component* tenon_components_v1[] = {&tenon_component_v1};                    \
  __attribute__((visibility("default"), used)) extern const tenon_plugin tenon_plugin_v1 = {                \
      {sizeof(tenon_plugin), TENON_ABI_MAJOR, TENON_ABI_MINOR},                                             \
      TENON_PLUGIN_VENDOR,                                                                                  \
      TENON_PLUGIN_VERSION,                                                                                 \
      TENON_PLUGIN_LICENSE,                                                                                 \
      TENON_PLUGIN_URL,                                                                                     \
      __VERSION__,                                                                                          \
      1,                                                                                                    \
      0,                                                                                                    \
      tenon_components_v1,                                                                                  \
      nullptr};                                                                                             \
  }                                                                                                         \
  static_assert(true)
