/* sampler.acme.typical: locally typical sampling (Meister, Pimentel, Wiher, Cotterell: "Locally Typical Sampling", TACL
 * 2023, arXiv:2202.00666).  Of the tokens whose information -log p lies nearest to the distribution's entropy it keeps
 * as many as have the probability `p` together.  A plugin in plain C11: this file and the C headers are all of it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tenon/abi/plugin.h"

/* ---- parameters ---- */

typedef struct record { /* what a sequence's request asks for; the host keeps one a slot */
  float p;
} record;

static const tenon_param_spec p_spec = {
    .h = {sizeof(tenon_param_spec), 1, 0},
    .name = "p",
    .doc = "Probability that the kept tokens have together",
    .unit = "",
    .type = TENON_PARAM_REAL,
    .flags = TENON_PARAM_PER_REQUEST,
    .real_default = 0.95,
    .real_min = 0.01,
    .real_max = 1,
};
static const tenon_param_spec *const specs[] = {&p_spec};
static const tenon_param_schema schema = {{sizeof(tenon_param_schema), 1, 0}, 1, 0, specs};

static tenon_status encode(void *self, const tenon_params *request, void *out, tenon_reason *why) {
  (void)self, (void)why;
  ((record *)out)->p = (float)request->value[0].real; /* value[i] belongs to specs[i] */
  return TENON_OK;
}

/* ---- the operation: a chunk is a row ---- */

typedef struct args { /* copied by the host; no pointers */
  uint32_t vocab, reserved;
  int64_t in_stride; /* elements from row to row of the logits */
} args;
enum { IN, OUT, PARAMS, LIVE, OUT_ROW, SLOT, OPERANDS };

typedef struct token { /* a candidate in scratch */
  float distance;      /* |information - entropy| */
  float probability;
} token;

static void swap(token *a, token *b) {
  const token t = *a;
  *a = *b;
  *b = t;
}

/* The distance up to which tokens are kept: quickselect by probability.  Orders t[0, n) only as far as need be. */
static float distance_of_mass(token *t, uint32_t n, double mass) {
  while (n > 1) {
    const float pivot = t[n / 2].distance;
    uint32_t below = 0, equal_end = 0,
             above = n; /* [0, below) < pivot, [below, equal_end) == pivot, [above, n) > pivot */
    double mass_below = 0, mass_equal = 0;
    while (equal_end < above) {
      if (t[equal_end].distance < pivot) {
        mass_below += t[equal_end].probability;
        swap(&t[below++], &t[equal_end++]);
      } else if (t[equal_end].distance > pivot) {
        swap(&t[equal_end], &t[--above]);
      } else {
        mass_equal += t[equal_end++].probability;
      }
    }
    if (mass_below >= mass && below > 0) {
      n = below;
    } else if (mass_below + mass_equal >= mass || above == n) {
      return pivot;
    } else {
      mass -= mass_below + mass_equal;
      t += above;
      n -= above;
    }
  }
  return t[0].distance;
}

static void keep_typical(const float *in, float *out, uint32_t vocab, double p, token *scratch) {
  float largest = -INFINITY;
  for (uint32_t i = 0; i < vocab; ++i) {
    if (in[i] > largest) largest = in[i]; /* NaN is never larger: it is out, like -infinity */
  }
  double sum = 0, weighted = 0;
  for (uint32_t i = 0; i < vocab; ++i) {
    if (!(in[i] > -INFINITY)) continue;
    const double e = exp((double)in[i] - largest);
    sum += e;
    weighted += e * ((double)in[i] - largest);
  }
  const double log_sum = log(sum), entropy = log_sum - weighted / sum;
  uint32_t n = 0;
  for (uint32_t i = 0; i < vocab; ++i) {
    if (!(in[i] > -INFINITY)) continue;
    const double log_p = (double)in[i] - largest - log_sum;
    scratch[n].distance = (float)fabs(-log_p - entropy);
    scratch[n++].probability = (float)exp(log_p);
  }
  const float limit = n == 0 ? 0 : distance_of_mass(scratch, n, p);
  for (uint32_t i = 0; i < vocab; ++i) {
    const int is_in = in[i] > -INFINITY;
    const float distance = is_in ? (float)fabs(-((double)in[i] - largest - log_sum) - entropy) : 0;
    out[i] = is_in && distance <= limit ? in[i] : -INFINITY;
  }
}

static tenon_status run(void *self, const void *arguments, const tenon_part *part) {
  (void)self;
  const args *a = arguments;
  void *const *ptr = part->launch->ptr;
  const uint32_t live_rows = ((const uint32_t *)ptr[LIVE])[2];
  for (uint32_t row = part->begin; row < part->end && row < live_rows; ++row) {
    const int32_t slot = ((const int32_t *)ptr[SLOT])[((const int32_t *)ptr[OUT_ROW])[row]];
    const float p = ((const record *)ptr[PARAMS])[slot].p;
    keep_typical((const float *)ptr[IN] + row * a->in_stride, (float *)ptr[OUT] + (size_t)row * a->vocab, a->vocab, p,
                 part->thread_scratch);
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
  tenon_op op = {.h = {sizeof(tenon_op), 1, 0}, .name = "keep_typical"};
  op.operand = operands;
  op.n_operands = OPERANDS;
  op.args = &a;
  op.args_bytes = sizeof(a);
  op.phases = 1;
  op.chunks[0] = rec->bounds->out_rows;
  op.thread_scratch_bytes = (uint64_t)c->vocab * sizeof(token);
  op.cost.read[1] = op.cost.written[1] = (double)row_bytes; /* a row */
  op.cost.flops[1] = 60.0 * c->vocab;
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

static const tenon_component typical = {
    .h = {sizeof(tenon_component), 1, 0},
    .kind = "sampler",
    .name = "acme.typical",
    .device = TENON_PLUGIN_DEVICE,
    .doc = "Keeps tokens whose information is near the distribution's entropy",
    .schema = &schema,
    .create = create,
    .destroy = destroy,
    .interface = interface,
};
TENON_PLUGIN("sampler", TENON_LAYOUT_SAMPLER, "acme.typical", typical);
