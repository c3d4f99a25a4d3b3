/* Packaging: there is one library for each (kind, name, device).  An ELF note describes it, and is read before dlopen.  C11 and C++20.
 *
 * A library exports one data symbol, `tenon_plugin_v1`, of type tenon_plugin; everything else is hidden. */
#ifndef TENON_ABI_PLUGIN_H
#define TENON_ABI_PLUGIN_H

#include "tenon/abi/attention.h"
#include "tenon/abi/device.h"
#include "tenon/abi/draft.h"
#include "tenon/abi/kv_cache.h"
#include "tenon/abi/layout.h"
#include "tenon/abi/op.h"
#include "tenon/abi/params.h"
#include "tenon/abi/program.h"
#include "tenon/abi/quantization.h"
#include "tenon/abi/sampler.h"
#include "tenon/abi/scheduler.h"
#include "tenon/abi/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_ABI_MAJOR 1
#define TENON_ABI_MINOR 0
#define TENON_PLUGIN_SYMBOL "tenon_plugin_v1"

/* The descriptor of the ELF note (section ".note.tenon", owner "Tenon", type TENON_NOTE_TYPE).  Frozen; strings are 0-terminated. */
typedef struct tenon_note {
  uint16_t abi_major, abi_minor; /* the library was built against these */
  uint16_t needs_minor;          /* the least host minor version that it works with */
  uint16_t reserved;
  /* A name is [a-z0-9_]+, or has a vendor's before it: "acme.typical".
   * device: a library for "cpu" or "cuda" is opened only if that device is live; "host" is a draft or a scheduler, for any device. */
  char kind[16], name[48], device[16];
  char schema_hash[24];                /* the parameter schema's, equal over all devices of a (kind, name); "" = not stated */
  char layout_hash[24];                /* TENON_LAYOUT_<KIND> of layout.h, while the interface is a draft */
  char targets[64];                    /* the hardware that it has code for: "x86-64", "sm_90a;sm_100a" */
} tenon_note;
typedef struct tenon_note_section { /* Elf64_Nhdr, owner, descriptor */
  uint32_t owner_bytes, descriptor_bytes, type;
  char owner[8];
  tenon_note note;
} tenon_note_section;
#define TENON_NOTE_OWNER "Tenon"
#define TENON_NOTE_TYPE 0x7465

/* The host's services are there for every component, from create until destroy has returned. */
typedef struct tenon_host {
  tenon_head h;
  void *ctx;
  /* [setup] It gives device or host memory beyond what the footprints state, and counts it under `purpose` ("tuning", "tables").
   * NO_SPACE: there is none left. */
  tenon_status (*alloc)(void *ctx, uint32_t space, uint64_t bytes, const char *purpose, void **out, tenon_reason *why);
  void (*release)(void *ctx, void *p); /* [setup] */
  void (*log)(void *ctx, uint32_t level, const char *message); /* [any] level: 0 debug, 1 info, 2 warning, 3 error */
} tenon_host;

typedef struct tenon_env { /* an instance borrows it for its life */
  tenon_head h;
  const tenon_host *host;
  const tenon_device *device;
  uint32_t ordinal, reserved; /* the user wants the device with this number (the key device.index) */
} tenon_env;

/* A component may do these things otherwise than all others of its kind.  Each of them replaces a rule that the checks hold the
 * kind to by the rule that it states; all other rules hold.  `tenon plugin check` says which rules a component was held to. */
enum {
  TENON_OWN_FORMULA = 1, /* attention: its answer is not the softmax over all that a row sees.  It is held to its operands, and a
                            row to the same bits alone and among others */
  TENON_OWN_TOKENS = 2   /* kv_cache: it does not keep every token.  The cells that its view says are in use read back as what
                            was appended at the positions that the view says, and what the newest step appended is among them */
};
typedef struct tenon_component {
  tenon_head h;
  const char *kind, *name, *device, *doc;
  const tenon_param_schema *schema;
  tenon_status (*create)(const tenon_params *params, const tenon_env *env, void **self, tenon_reason *why); /* [setup] */
  void (*destroy)(void *self); /* [setup] queues drained, programs gone */
  /* [any] It gives the table of an interface: that of its own kind, such as "quantization/1", or of an optional extension.  NULL:
   * it has none of that id.  The component owns the table, which is valid as long as the instance. */
  const void *(*interface)(void *self, const char *id);
  uint32_t own_rules, reserved; /* TENON_OWN_* */
} tenon_component;

typedef struct tenon_plugin {
  tenon_head h;
  const char *vendor, *version, *license, *url, *compiler;
  uint32_t n_components, reserved; /* always 1 */
  const tenon_component *const *component;
  tenon_status (*init)(const tenon_host *host, tenon_reason *why); /* [setup] It is called once, after loading; it may be NULL. */
} tenon_plugin;

/* tenon_add_plugin() or the compiler's command line may define these; the values here stand for a library that does not. */
#ifndef TENON_PLUGIN_DEVICE
#define TENON_PLUGIN_DEVICE "cpu"
#define TENON_PLUGIN_TARGETS "x86-64"
#endif
#ifndef TENON_PLUGIN_VENDOR
#define TENON_PLUGIN_VENDOR "unknown"
#define TENON_PLUGIN_VERSION "0"
#define TENON_PLUGIN_LICENSE "unknown"
#define TENON_PLUGIN_URL ""
#endif

#ifndef __cplusplus
/* It stands at file scope of one source file of a library in C, and makes the note, the table of components and the symbol.
 *   static const tenon_component typical = {...};
 *   TENON_PLUGIN("sampler", TENON_LAYOUT_SAMPLER, "acme.typical", typical);
 * kind and name are the component's own, as literals.  TENON_PLUGIN_SCHEMA_HASH, if it is defined before this header is included,
 * is stated in the note; `tenon inspect --schema-hash FILE` prints it.  A library for one device needs none.  (In C++ the macro is
 * TENON_PLUGIN(Class) of tenon/sdk/component.h.) */
#ifndef TENON_PLUGIN_SCHEMA_HASH
#define TENON_PLUGIN_SCHEMA_HASH ""
#endif
#define TENON_PLUGIN(kind_text, layout, name_text, component_table)                                            \
  __attribute__((section(".note.tenon"), used, aligned(4))) const tenon_note_section tenon_note_v1 = {         \
      sizeof(TENON_NOTE_OWNER),                                                                                \
      sizeof(tenon_note),                                                                                      \
      TENON_NOTE_TYPE,                                                                                         \
      TENON_NOTE_OWNER,                                                                                        \
      {TENON_ABI_MAJOR, TENON_ABI_MINOR, 0, 0, kind_text, name_text, TENON_PLUGIN_DEVICE,                      \
       TENON_PLUGIN_SCHEMA_HASH, layout, TENON_PLUGIN_TARGETS}};                                               \
  static const tenon_component *const tenon_components_v1[] = {&(component_table)};                            \
  __attribute__((visibility("default"), used)) const tenon_plugin tenon_plugin_v1 = {                          \
      {sizeof(tenon_plugin), TENON_ABI_MAJOR, TENON_ABI_MINOR}, TENON_PLUGIN_VENDOR, TENON_PLUGIN_VERSION,     \
      TENON_PLUGIN_LICENSE, TENON_PLUGIN_URL, __VERSION__, 1, 0, tenon_components_v1, NULL}
#endif

#ifdef __cplusplus
}
#endif
#endif
