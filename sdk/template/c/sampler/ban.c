/* sampler.ban: a token that is never chosen.  Plain C11. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tenon/abi/plugin.h"

/* ---- parameters: of one sequence, filled in by encode() when its request starts ---- */

typedef struct record {
  int32_t token;
} record;

static const tenon_param_spec token_spec = {
    .h = {sizeof(tenon_param_spec), 1, 0},
    .name = "token",
    .doc = "The token's id",
    .unit = "",
    .type = TENON_PARAM_INT,
    .flags = TENON_PARAM_PER_REQUEST,
    .int_max = INT32_MAX,
};
static const tenon_param_spec *const specs[] = {&token_spec};
static const tenon_param_schema schema = {{sizeof(tenon_param_schema), 1, 0}, 1, 0, specs};

static tenon_status encode(void *self, const tenon_params *request, void *out, tenon_reason *why) {
  (void)self, (void)why;
  ((record *)out)->token = (int32_t)request->value[0].integer; /* value[i] belongs to specs[i] */
  return TENON_OK;
}

/* ---- the operation: a chunk is a row ---- */

typedef struct args { /* copied by the host; no pointers */
  uint32_t vocab, reserved;
  int64_t in_stride; /* elements from row to row of the logits */
} args;
enum { IN, OUT, PARAMS, LIVE, OUT_ROW, SLOT, OPERANDS };

static tenon_status run(void *self, const void *arguments, const tenon_part *part) {
  (void)self;
  const args *a = arguments;
  void *const *ptr = part->launch->ptr;
  const uint32_t live_rows = ((const uint32_t *)ptr[LIVE])[2];
  for (uint32_t row = part->begin; row < part->end && row < live_rows; ++row) {
    const int32_t slot = ((const int32_t *)ptr[SLOT])[((const int32_t *)ptr[OUT_ROW])[row]];
    const uint32_t banned = (uint32_t)((const record *)ptr[PARAMS])[slot].token;
    float *out = (float *)ptr[OUT] + (size_t)row * a->vocab;
    memcpy(out, (const float *)ptr[IN] + row * a->in_stride, a->vocab * sizeof(float));
    if (banned < a->vocab) out[banned] = -INFINITY;
  }
  return TENON_OK;
}

/* An id of 0, or a status that is not TENON_OK, means that the host has noted what is wrong: just return. */
static tenon_status record_apply(void *self, const tenon_sampling *s, tenon_candidates *c, const tenon_recorder *rec,
                                 tenon_reason *why) {
  (void)self, (void)why;
  const int64_t rows = rec->bounds->out_rows, row_bytes = (int64_t)c->vocab * (int64_t)sizeof(float);
  const tenon_tensor like = {.h = {sizeof(tenon_tensor), 1, 0},
                             .format = TENON_F32,
                             .rank = 2,
                             .space = TENON_SPACE_DEVICE,
                             .dim = {rows, c->vocab},
                             .stride = {row_bytes, sizeof(float)}};
  const tenon_tid out = rec->temp(rec->ctx, &like);
  tenon_tensor in = {.h = {sizeof(tenon_tensor), 1, 0}};
  rec->describe(rec->ctx, c->logits, &in);
  const tenon_operand operands[OPERANDS] = {
      [IN] = {c->logits, TENON_READ},
      [OUT] = {out, TENON_WRITE},
      [PARAMS] = {s->params, TENON_READ},
      [LIVE] = {rec->step(rec->ctx, TENON_STEP_LIVE), TENON_READ},
      [OUT_ROW] = {rec->step(rec->ctx, TENON_STEP_OUT_ROW), TENON_READ},
      [SLOT] = {rec->step(rec->ctx, TENON_STEP_SLOT), TENON_READ},
  };
  const args a = {.vocab = c->vocab, .in_stride = in.stride[0] / (int64_t)sizeof(float)};
  tenon_op op = {.h = {sizeof(tenon_op), 1, 0}, .name = "drop"};
  op.operand = operands;
  op.n_operands = OPERANDS;
  op.args = &a;
  op.args_bytes = sizeof(a);
  op.phases = 1;
  op.chunks[0] = rec->bounds->out_rows;
  op.cost.read[1] = op.cost.written[1] = (double)row_bytes; /* a row */
  op.part = run;
  if (out == 0 || rec->emit(rec->ctx, &op) != TENON_OK) return TENON_ERROR;
  c->logits = out;
  return TENON_OK;
}

/* ---- the component ---- */

static uint64_t state_bytes(void *self, uint32_t vocab) {
  (void)self, (void)vocab;
  return 0;
}
static const tenon_sampler table = {
    .h = {sizeof(tenon_sampler), 1, 0},
    .in_forms = TENON_DENSE,
    .param_bytes = sizeof(record),
    .state_bytes = state_bytes,
    .encode = encode,
    .record_apply = record_apply,
};

static tenon_status create(const tenon_params *params, const tenon_env *env, void **self, tenon_reason *why) {
  (void)params, (void)env, (void)why;
  *self = malloc(1); /* it has nothing to remember, but two instances are two */
  return *self == NULL ? TENON_NO_SPACE : TENON_OK;
}
static void destroy(void *self) { free(self); }
static const void *interface(void *self, const char *id) {
  (void)self;
  return strcmp(id, "sampler/1") == 0 ? &table : NULL;
}

static const tenon_component component = {
    .h = {sizeof(tenon_component), 1, 0},
    .kind = "sampler",
    .name = "ban",
    .device = TENON_PLUGIN_DEVICE,
    .doc = "One token is never chosen",
    .schema = &schema,
    .create = create,
    .destroy = destroy,
    .interface = interface,
};
TENON_PLUGIN("sampler", TENON_LAYOUT_SAMPLER, "ban", component);
