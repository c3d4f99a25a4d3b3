/* The basic types of the binary boundary.  C11 and C++20; docs/glossary.md has the words.
 *
 * Growth.  Every struct that crosses begins with tenon_head, or is marked as frozen, and grows at its end only.  A reader takes
 * min(size) bytes, and a field that is missing counts as 0.  Arrays of structs that may grow are arrays of pointers.
 * Ownership.  A pointer that is passed in is borrowed for the call unless its comment says otherwise.  Who allocates frees. */
#ifndef TENON_ABI_TYPES_H
#define TENON_ABI_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tenon_head {
  uint32_t size; /* the struct has so many bytes as its writer knows it */
  uint16_t major, minor;
} tenon_head;

typedef int32_t tenon_status;
enum {
  TENON_OK = 0,
  TENON_ERROR = -1,    /* the call failed; the reason's text says why */
  TENON_REFUSED = -2,  /* the component does not do this; the reason's text says why */
  TENON_NO_SPACE = -3  /* memory or the cache is used up; the call may work later */
};

/* A reason is the caller's buffer for a message.  The callee writes cap bytes at most, the 0 at the end included; text may be NULL. */
typedef struct tenon_reason {
  char *text;
  uint32_t cap;
} tenon_reason;

/* Anybody may add to these vocabularies: below 2^16 ids are Tenon's own, above it an id is the 64-bit FNV-1a hash of a name. */
typedef uint64_t tenon_id;

/* A format says how elements are stored.  Plain types are below 64; GGUF's block formats are 64 plus GGUF's own number. */
typedef uint32_t tenon_format;
enum {
  TENON_FORMAT_NONE = 0,
  TENON_F32 = 1,
  TENON_F16,
  TENON_BF16,
  TENON_F64,
  TENON_I8,
  TENON_I16,
  TENON_I32,
  TENON_I64,
  TENON_U8,
  TENON_U32,
  TENON_BOOL,
  TENON_F8E4M3,
  TENON_F8E5M2,
  TENON_F4E2M1,
  TENON_E8M0,

  TENON_GGUF_FORMATS = 64, /* these have blocks along the innermost dimension */
  TENON_Q4_0 = 64 + 2,     /* 32 weights in 18 bytes */
  TENON_Q4_1 = 64 + 3,     /* 32 in 20 */
  TENON_Q5_0 = 64 + 6,     /* 32 in 22 */
  TENON_Q5_1 = 64 + 7,     /* 32 in 24 */
  TENON_Q8_0 = 64 + 8,     /* 32 in 34 */
  TENON_Q2_K = 64 + 10,    /* 256 in 84 */
  TENON_Q3_K = 64 + 11,    /* 256 in 110 */
  TENON_Q4_K = 64 + 12,    /* 256 in 144 */
  TENON_Q5_K = 64 + 13,    /* 256 in 176 */
  TENON_Q6_K = 64 + 14,    /* 256 in 210 */
  TENON_Q8_K = 64 + 15,    /* 256 in 292 */
  TENON_IQ4_NL = 64 + 20,  /* 32 in 18 */
  TENON_IQ4_XS = 64 + 23,  /* 256 in 136 */
  TENON_TQ1_0 = 64 + 34,   /* 256 in 54 */
  TENON_TQ2_0 = 64 + 35,   /* 256 in 66 */
  TENON_MXFP4 = 64 + 39    /* 32 in 17 */
};

/* One block of a format has so many elements and bytes; a plain type is a block of one (TENON_F4E2M1: of two), and an unknown
 * format has 0 of both.  Frozen. */
typedef struct tenon_block {
  uint32_t elements, bytes;
} tenon_block;

static inline tenon_block tenon_format_block(tenon_format format) {
  tenon_block b = {0, 0};
  switch (format) {
    case TENON_F32: case TENON_I32: case TENON_U32: b.elements = 1; b.bytes = 4; break;
    case TENON_F16: case TENON_BF16: case TENON_I16: b.elements = 1; b.bytes = 2; break;
    case TENON_F64: case TENON_I64: b.elements = 1; b.bytes = 8; break;
    case TENON_I8: case TENON_U8: case TENON_BOOL: case TENON_F8E4M3: case TENON_F8E5M2: case TENON_E8M0:
      b.elements = 1; b.bytes = 1; break;
    case TENON_F4E2M1: b.elements = 2; b.bytes = 1; break;
    case TENON_Q4_0: b.elements = 32; b.bytes = 18; break;
    case TENON_Q4_1: b.elements = 32; b.bytes = 20; break;
    case TENON_Q5_0: b.elements = 32; b.bytes = 22; break;
    case TENON_Q5_1: b.elements = 32; b.bytes = 24; break;
    case TENON_Q8_0: b.elements = 32; b.bytes = 34; break;
    case TENON_Q2_K: b.elements = 256; b.bytes = 84; break;
    case TENON_Q3_K: b.elements = 256; b.bytes = 110; break;
    case TENON_Q4_K: b.elements = 256; b.bytes = 144; break;
    case TENON_Q5_K: b.elements = 256; b.bytes = 176; break;
    case TENON_Q6_K: b.elements = 256; b.bytes = 210; break;
    case TENON_Q8_K: b.elements = 256; b.bytes = 292; break;
    case TENON_IQ4_NL: b.elements = 32; b.bytes = 18; break;
    case TENON_IQ4_XS: b.elements = 256; b.bytes = 136; break;
    case TENON_TQ1_0: b.elements = 256; b.bytes = 54; break;
    case TENON_TQ2_0: b.elements = 256; b.bytes = 66; break;
    case TENON_MXFP4: b.elements = 32; b.bytes = 17; break;
    default: break;
  }
  return b;
}

static inline const char *tenon_format_name(tenon_format format) {
  switch (format) {
    case TENON_F32: return "f32";
    case TENON_F16: return "f16";
    case TENON_BF16: return "bf16";
    case TENON_F64: return "f64";
    case TENON_I8: return "i8";
    case TENON_I16: return "i16";
    case TENON_I32: return "i32";
    case TENON_I64: return "i64";
    case TENON_U8: return "u8";
    case TENON_U32: return "u32";
    case TENON_BOOL: return "bool";
    case TENON_F8E4M3: return "f8e4m3";
    case TENON_F8E5M2: return "f8e5m2";
    case TENON_F4E2M1: return "f4e2m1";
    case TENON_E8M0: return "e8m0";
    case TENON_Q4_0: return "q4_0";
    case TENON_Q4_1: return "q4_1";
    case TENON_Q5_0: return "q5_0";
    case TENON_Q5_1: return "q5_1";
    case TENON_Q8_0: return "q8_0";
    case TENON_Q2_K: return "q2_k";
    case TENON_Q3_K: return "q3_k";
    case TENON_Q4_K: return "q4_k";
    case TENON_Q5_K: return "q5_k";
    case TENON_Q6_K: return "q6_k";
    case TENON_Q8_K: return "q8_k";
    case TENON_IQ4_NL: return "iq4_nl";
    case TENON_IQ4_XS: return "iq4_xs";
    case TENON_TQ1_0: return "tq1_0";
    case TENON_TQ2_0: return "tq2_0";
    case TENON_MXFP4: return "mxfp4";
    default: return "unknown";
  }
}

/* A borrowed view of memory.  dim counts elements, outermost first; stride counts bytes (in the innermost dimension of a block
 * format: from one block to the next). */
typedef struct tenon_tensor {
  tenon_head h;
  tenon_format format;
  uint32_t rank;  /* 1 to 6 */
  uint32_t space; /* TENON_SPACE_* */
  uint32_t reserved;
  int64_t dim[6], stride[6];
} tenon_tensor;
enum {
  TENON_SPACE_DEVICE = 0,
  TENON_SPACE_HOST = 1
};

#ifdef __cplusplus
}
#endif
#endif
