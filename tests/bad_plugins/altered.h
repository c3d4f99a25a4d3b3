// This is the good sampler with something altered in what describes it: TENON_ALTERED_PLUGIN(it.note.abi_minor = 7;).
#pragma once

#include "good_sampler.h"

namespace tenon::bad {

struct Description {
  tenon_note note = sdk::detail::note<Good>().note;
  tenon_component component = sdk::detail::component<Good>();
};

constexpr void set_device(const char* device, Description& it) {
  for (char& c : it.note.device) c = '\0';
  sdk::detail::copy_text(device, it.note.device);
  it.component.device = device;
}

constexpr tenon_note_section section_of(const tenon_note& note) {
  tenon_note_section section = sdk::detail::note<Good>();
  section.note = note;
  return section;
}

}  // namespace tenon::bad

#define TENON_ALTERED_PLUGIN(alteration) TENON_ALTERED_PLUGIN_WITH_INIT(nullptr, alteration)
#define TENON_ALTERED_PLUGIN_WITH_INIT(init, alteration)                                                    \
  static constexpr tenon::bad::Description tenon_description = [] {                                         \
    tenon::bad::Description it;                                                                             \
    alteration return it;                                                                                   \
  }();                                                                                                      \
  extern "C" {                                                                                              \
  __attribute__((section(".note.tenon"), used, aligned(4))) extern const tenon_note_section tenon_note_v1 = \
      tenon::bad::section_of(tenon_description.note);                                                       \
  static constexpr const tenon_component* tenon_components_v1[] = {&tenon_description.component};           \
  __attribute__((visibility("default"), used)) extern const tenon_plugin tenon_plugin_v1 = {                \
      {sizeof(tenon_plugin), TENON_ABI_MAJOR, TENON_ABI_MINOR},                                             \
      "Tenon",                                                                                              \
      "0",                                                                                                  \
      "MIT",                                                                                                \
      "",                                                                                                   \
      __VERSION__,                                                                                          \
      1,                                                                                                    \
      0,                                                                                                    \
      tenon_components_v1,                                                                                  \
      init};                                                                                                \
  }                                                                                                         \
  static_assert(true)
