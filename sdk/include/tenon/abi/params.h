/* A component has parameters: the plugin publishes a schema, the host checks what the user wrote against it, and the plugin sees
 * typed values with defaults filled in.  C11 and C++20. */
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
  TENON_PARAM_REQUIRED = 1,   /* it has no default: the user must state it */
  TENON_PARAM_PER_REQUEST = 2 /* it belongs to a sampler, and a request may override it */
};

/* This describes one parameter.  All strings have static storage. */
typedef struct tenon_param_spec {
  tenon_head h;
  const char *name; /* the key in TOML, in snake_case */
  const char *doc;  /* one line that says what the parameter does */
  const char *unit; /* "tokens", "bytes", ...; "" if it has none */
  uint32_t type, flags; /* TENON_PARAM_* */
  int64_t int_default, int_min, int_max;    /* INT, bounds included; BOOL uses int_default as 0 or 1 */
  double real_default, real_min, real_max;  /* REAL, bounds included */
  const char *text_default;
  const char *choices; /* INT and TEXT: the values that are allowed, "32|64|128"; NULL = all within the range */
} tenon_param_spec;

/* This lists all parameters of a component.  It has static storage. */
typedef struct tenon_param_schema {
  tenon_head h;
  uint32_t count, reserved;
  const tenon_param_spec *const *spec; /* [count] */
} tenon_param_schema;

/* This is the value of one parameter; its type says which field counts.  Frozen. */
typedef struct tenon_param_value {
  int64_t integer; /* BOOL and INT */
  double real;      /* REAL */
  const char *text; /* TEXT; the host owns it, and it is valid for the call */
} tenon_param_value;

/* These are the values of all parameters: value[i] belongs to schema->spec[i] of the component.  Borrowed for the call. */
typedef struct tenon_params {
  tenon_head h;
  uint32_t count, reserved;
  const tenon_param_value *value; /* [count] */
} tenon_params;

#ifdef __cplusplus
}
#endif
#endif
