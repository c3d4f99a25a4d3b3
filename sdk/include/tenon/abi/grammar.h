/* grammar/1: a grammar says which tokens may come next, so that a text is of a form that its request demands.  C11 and C++20.
 * It works on the host (device "host") for a pipeline on any device.  The host compiles what a request states, keeps one matcher
 * for each sequence, and asks it for a mask before each token is chosen; the device applies the mask (TENON_F_MASK). */
#ifndef TENON_ABI_GRAMMAR_H
#define TENON_ABI_GRAMMAR_H

#include "tenon/abi/params.h"
#include "tenon/abi/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* TENON_F_MASK is one of the step's own ops, which the device records (record_step_op) before the samplers of a program whose rows
 * may have masks.  x: logits, f32[out_rows][vocab].  y: f32[out_rows][vocab], x where the row's mask has a 1, and minus infinity
 * where it has a 0; all of x for a row without a mask.  t[0]: masks, u32[out_rows][words], bit i % 32 of word i / 32 for token i.
 * t[1]: i32[out_rows], the number of the row's mask, or -1.  The host writes both while the ops before this one run: no op of the
 * program does. */
enum { TENON_F_MASK = 68 };

typedef struct tenon_vocabulary { /* the host makes it; it is valid during the call */
  tenon_head h;
  uint32_t tokens, ends;
  const char *bytes;      /* token i adds bytes [offset[i], offset[i + 1]) to the text */
  const uint64_t *offset; /* [tokens + 1]; a token of no bytes (a control token) is allowed only where a grammar names it */
  const int32_t *end;     /* [ends]: the tokens that end a text, at least one, ascending */
} tenon_vocabulary;

enum {                           /* how a grammar is written */
  TENON_GRAMMAR_JSON_SCHEMA = 1, /* a JSON Schema, as JSON */
  TENON_GRAMMAR_REGEX,           /* a regular expression that matches the whole text */
  TENON_GRAMMAR_EBNF             /* rules in GBNF; the text is a `root` */
};
enum { TENON_GRAMMAR_CLOSED = 1 /* JSON_SCHEMA: objects have no properties, and arrays no items, that the schema does not describe */ };
typedef struct tenon_grammar_source { /* the text need not end in a 0 */
  tenon_head h;
  uint32_t form, flags; /* TENON_GRAMMAR_* */
  const char *text;
  uint64_t bytes;
} tenon_grammar_source;

typedef struct tenon_grammar {
  tenon_head h;
  /* [setup] It is called once, before anything is compiled. */
  tenon_status (*prepare)(void *self, const tenon_vocabulary *vocabulary, tenon_reason *why);
  /* [any] Several threads may call it at once.  *out is the compiled grammar, which takes *bytes of memory.  REFUSED: the text is
   * wrong, or asks for what this component does not do; `why` says which and where.  It must come back in a time, and with an amount
   * of memory, that a stranger's text cannot drive up at will. */
  tenon_status (*compile)(void *self, const tenon_grammar_source *source, void **out, uint64_t *bytes, tenon_reason *why);
  void (*release)(void *self, void *compiled); /* [any] no matcher of it is left */
  /* [any] It makes a matcher at the beginning of a text.  A matcher is used by one thread at a time. */
  tenon_status (*start)(void *self, const void *compiled, void **matcher, tenon_reason *why);
  void (*stop)(void *self, void *matcher); /* [any] */
  /* [host] The text goes on with this token, which ends no text.  REFUSED: it is not allowed, and the matcher is as it was.  Between
   * two masks several tokens may be accepted, and drafts are asked about that no mask allows. */
  tenon_status (*accept)(void *self, void *matcher, int32_t token, tenon_reason *why);
  /* [host] It writes one bit for each token, (tokens + 31) / 32 words: 1 = the token may come next.  A token that ends the text is
   * allowed where the text is complete, and only there. */
  tenon_status (*mask)(void *self, void *matcher, uint32_t *bits, tenon_reason *why);
  /* [host] It takes back the newest `tokens` accepted tokens, no more than a step has drafts, so that a matcher can look at drafts before
   * it is known which of them come: all is as before they were accepted.  REFUSED, which the host asks for with 0 tokens when it has
   * started the matcher: this one takes nothing back, and text under its grammar comes without drafts.  NULL: none does. */
  tenon_status (*rewind)(void *self, void *matcher, uint32_t tokens, tenon_reason *why);
} tenon_grammar;

#ifdef __cplusplus
}
#endif
#endif
