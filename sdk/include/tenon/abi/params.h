/* Parameters of a component: the plugin publishes a schema, the host validates, the plugin sees typed, defaulted values.
 * C11 and C++20. */
#ifndef TENON_ABI_PARAMS_H
#define TENON_ABI_PARAMS_H

#include "tenon/abi/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  TENON_PARAM_BOOL = 1,
  TENON_PARAM_INT,
  TENON_PARAM_REAL,
  TENON_PARAM_TEXT
};
enum {
  TENON_PARAM_REQUIRED = 1,   /* no default: the user must state it */
  TENON_PARAM_PER_REQUEST = 2 /* a sampler's: a request may override it */
};

/* One parameter.  All strings have static storage. */
typedef struct tenon_param_spec {
  tenon_head h;
  const char *name; /* the key in TOML: snake_case */
  const char *doc;  /* one line */
  const char *unit; /* "tokens", "bytes", ...; "" if none */
  uint32_t type, flags;
  int64_t int_default, int_min, int_max;    /* BOOL uses int_default as 0 or 1 */
  double real_default, real_min, real_max;
  const char *text_default;
  const char *choices; /* INT and TEXT: "32|64|128", or NULL if free within the range */
} tenon_param_spec;

typedef struct tenon_param_schema {
  tenon_head h;
  uint32_t count, reserved;
  const tenon_param_spec *const *spec;
} tenon_param_schema;

/* Frozen. */
typedef struct tenon_param_value {
  int64_t integer; /* BOOL and INT */
  double real;
  const char *text; /* owned by the host, valid for the call */
} tenon_param_value;

/* value[i] belongs to the component's own schema->spec[i]; all are there. */
typedef struct tenon_params {
  tenon_head h;
  uint32_t count, reserved;
  const tenon_param_value *value;
} tenon_params;

#ifdef __cplusplus
}
#endif
#endif
