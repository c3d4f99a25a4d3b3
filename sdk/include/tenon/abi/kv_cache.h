/* kv_cache/1: where keys and values live.  C11 and C++20.
 *
 * PLACE IS NOT POSITION.  A row of a step has a position, which decides its rotary angle and its mask, and a place: the CELL of
 * the cache that holds its key and value.  Row i of a sequence, counted from the sequence's first row in the step, has the
 * ORDER KV_LEN + i.  In a chain a row's order is its position; in a tree of drafts siblings share a position and differ in
 * order.  What survives a step is a chain again, so cells from before a step have one number for both.
 *
 * WHAT A ROW SEES, whatever the cache:
 *   - OLD cells, which were in use before the step, at the position that the view's rule gives, as far as the windows leave
 *     them.  The place of any row of this step is no old cell, for no row.
 *   - Cells of THIS STEP: its own and those of its ancestors through TENON_STEP_PARENT.  The cell of row r is place[r], its
 *     position is POS[r].
 * Windows are about positions: a row at position n sees positions above n - window; of the view's window, positions below
 * `sinks` are exempt, of the layer's own (tenon_attn.window) none are.  Attention always reads back what the cache stored, this
 * step's keys too, so that verifying k rows equals decoding them one by one. */
#ifndef TENON_ABI_KV_CACHE_H
#define TENON_ABI_KV_CACHE_H

#include "tenon/abi/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How one of K, V is coded.  Frozen.  tenon/sdk/kv_codec.h has a functor for each codec. */
typedef struct tenon_kv_plane {
  uint32_t codec; /* f32, f16, bf16, or i8: an element is its integer times the scale of its cell and head */
  uint32_t scale; /* f32 or f16: one number for each cell and head; 0 = none */
} tenon_kv_plane;

typedef struct tenon_kv_format {
  tenon_head h;
  tenon_kv_plane k, v;
  /* 1: keys are stored after rope.  0: before it, and the reader turns them (see RENUMBERED): the append then stands before
   * ROPE in the chain, no scheme is offered that ROPE, and attention claims it for its queries or the pairing is refused. */
  uint32_t rotated, reserved;
} tenon_kv_format;

/* Which position an old cell c of a sequence holds. */
enum {
  TENON_POS_LINEAR = 1, /* c, for c < KV_LEN */
  TENON_POS_RING,       /* c for c < sinks, else the largest p < KV_LEN with (p - sinks) % ring == c - sinks */
  TENON_POS_TABLE       /* view.pos says; -1, or KV_LEN and above: the cell is not old */
};
/* Under LINEAR and RING the place of the row of order o is the cell that the rule gives o, so that a reader of chains needs
 * no more than positions. */

enum {
  /* Pages, places, lengths and positions are apart for each KV head: an axis of heads stands after slot, row or page. */
  TENON_KV_HEADS_APART = 1,
  /* Keys before rope, whose table index is not the position.  With d = max(0, n + 1 - (sinks + window)) of a row at position
   * n: the query has index n - d, a sink its position, another cell of position p the index p - d.  No index reaches
   * sinks + window, so the table never needs more rows.  Without the flag an index is a position.
   * Xiao et al., arXiv:2309.17453. */
  TENON_KV_RENUMBERED = 2
};

typedef struct tenon_kv_view { /* everything that a reader or writer needs */
  tenon_head h;
  const tenon_kv_format *format; /* lives as long as the cache */
  uint32_t flags;                /* TENON_KV_* */
  uint32_t heads, k_dim, v_dim;
  uint32_t page_cells; /* a power of two: cell c of a sequence lies in column c / page_cells of the table of pages */
  uint32_t columns;    /* of that table */
  uint32_t pos_rule;   /* TENON_POS_* */
  uint32_t sinks;      /* RING's first cells, and the window's exemption */
  uint32_t ring;       /* cells, for RING */
  uint32_t window;     /* of the policy; 0 = unlimited */
  /* The policy wants softmax weights: attention adds those of the step's last weight_rows rows of each sequence, over rows and
   * over the query heads of a KV head, and writes the sum of every cell to `weights`, 0 for cells that none of them sees.
   * Slots without rows in the step keep what they have.  0 = not wanted, and nobody pays. */
  uint32_t weight_rows;
  tenon_tid k, v;             /* planes, by page, cell and head */
  tenon_tid k_scale, v_scale; /* the same, if the format has scales */
  tenon_tid pages;            /* i32[slots][columns], with an axis of heads if apart */
  tenon_tid place;            /* i32[rows]: the cell of each row of the step; [rows][heads] if apart */
  tenon_tid used;             /* TABLE: i32[slots]: old cells are below it; [slots][heads] if apart */
  tenon_tid pos;              /* TABLE: i32[pages][page_cells]; [pages][heads][page_cells] if apart */
  tenon_tid weights;          /* f32[slots][heads][columns * page_cells] */
  int64_t k_stride[3], v_stride[3], ks_stride[3], vs_stride[3]; /* page, cell, head; bytes */
  tenon_id group;                                               /* layers of one group share pages and lengths */
} tenon_kv_view;

typedef struct tenon_kv_geometry {
  tenon_head h;
  uint32_t layer, heads, k_dim, v_dim;
  uint32_t window, reserved; /* 0 = unlimited; the layer's mask, not the cache's choice */
} tenon_kv_geometry;

/* Layers are known once, by plan: geometry[i] describes layer i.  The stores are the host's, as the footprint says; their ids
 * come with view() and the recording functions. */
typedef struct tenon_kv_stores {
  tenon_head h;
  const tenon_tid *store; /* as many as the footprint has */
} tenon_kv_stores;

typedef struct tenon_kv_cache {
  tenon_head h;
  /* [setup] before plan: may it hold this layer under these bounds, the largest of any program?  REFUSED with the reason.
   * Else `out` is the prototype of the layer's view, tensors and strides 0: attention is asked with it. */
  tenon_status (*claim)(void *self, const tenon_kv_geometry *g, const tenon_bounds *b, tenon_kv_view *out,
                        tenon_reason *why);
  /* [setup] once, before any recording: all layers, and the largest bounds.  bounds->kv_len is the capacity in tokens; with
   * TENON_FOOTPRINT_ENDLESS in the footprint's flags sequences may grow past it. */
  tenon_status (*plan)(void *self, const tenon_kv_geometry *const *g, uint32_t n, const tenon_bounds *b,
                       tenon_footprint *out, tenon_reason *why);
  /* [setup] the stores are allocated and zero. */
  tenon_status (*attach)(void *self, void *const *store, void *queue, tenon_reason *why);
  tenon_status (*view)(void *self, uint32_t layer, const tenon_kv_stores *s, const tenon_recorder *rec, tenon_kv_view *out,
                       tenon_reason *why); /* [record] */
  /* [record] may be NULL; once a program, before anything else: ops that fill the cache's own tensors (places, lengths,
   * positions) from the step state, so that captured steps go on without the host. */
  tenon_status (*record_begin)(void *self, const tenon_kv_stores *s, const tenon_recorder *rec, tenon_reason *why);
  /* The two that stand in for attention that does not append, or has no reader for the codecs.  [record], not optional.
   * append: k, v are f32 (rows, heads * dim), rows may be strided; the step's rows go to their places. */
  tenon_status (*record_append)(void *self, uint32_t layer, const tenon_kv_stores *s, tenon_tid k, tenon_tid v,
                                const tenon_recorder *rec, tenon_reason *why);
  /* A copy of the layer's cells with other codecs, made anew each step: rule, cells and `rotated` stay as they are. */
  tenon_status (*record_dequant)(void *self, uint32_t layer, const tenon_kv_stores *s, const tenon_kv_format *want,
                                 const tenon_recorder *rec, tenon_kv_view *out, tenon_reason *why);
  /* [record] once, after verification, in programs whose bounds allow trees: the cells of the rows in TENON_STEP_SURVIVOR
   * become those of the orders from KV_LEN on.  Of a chain the survivors lie there already. */
  tenon_status (*record_commit)(void *self, const tenon_kv_stores *s, const tenon_recorder *rec, tenon_reason *why);
  /* [host] by slot; decisions from upper bounds only.  NO_SPACE: the scheduler waits or preempts.  fork: as truncate. */
  tenon_status (*reserve)(void *self, uint32_t slot, uint32_t kv_len, tenon_reason *why);
  tenon_status (*fork)(void *self, uint32_t from, uint32_t to, uint32_t kv_len, void *queue, tenon_reason *why);
  /* 0 frees the slot.  REFUSED where the cache no longer has what a sequence of that length sees. */
  tenon_status (*truncate)(void *self, uint32_t slot, uint32_t kv_len, tenon_reason *why);
  tenon_status (*publish)(void *self, void *queue, tenon_reason *why); /* enqueue changed tables, if any changed */
  /* [host] a sequence's cache as bytes, tagged with the format.  dst NULL: only *bytes is set.  REFUSED as truncate. */
  tenon_status (*export_sequence)(void *self, uint32_t slot, uint32_t kv_len, void *queue, void *dst, uint64_t *bytes,
                                  tenon_reason *why);
  tenon_status (*import_sequence)(void *self, uint32_t slot, uint32_t kv_len, void *queue, const void *src, uint64_t bytes,
                                  tenon_reason *why);
  /* [any] bytes of live keys and values for a sequence of that length, for counters and costs. */
  uint64_t (*used_bytes)(void *self, uint32_t kv_len);
  /* [host] pages that no sequence holds, and how many tokens a page has; NULL where every slot has room for the whole capacity. */
  uint32_t (*free_pages)(void *self, uint32_t *page_tokens);
  /* Sequences that begin alike may share cells.  All three, or all NULL: the cache then finds nothing again.  A cache compares
   * the tokens themselves, never only a hash of them; what it found stays right, whoever else holds it, writes on or ends.  A page
   * that is found and that no sequence holds counts as free, and is lost where the room is needed.
   * find: [host] how many leading ones of these n tokens are in the cache; *held: how many of those lie in pages that a sequence
   * holds, so that to adopt them takes no free page. */
  uint32_t (*find)(void *self, const int32_t *tokens, uint32_t n, uint32_t *held);
  /* [host] what find finds becomes the beginning of a slot that has nothing; *kv_len: its length, at most n.  A sequence's last
   * token is not asked for, since somebody wants the logits of its row. */
  tenon_status (*adopt)(void *self, uint32_t slot, const int32_t *tokens, uint32_t n, uint32_t *kv_len, tenon_reason *why);
  /* [host] the slot's first n tokens are these, and steps that are launched have written their cells, which no step will write
   * again unless the slot is cut below n: they may be found from now on.  n = 0: none of the slot's cells may be found any more,
   * since its sequence has failed. */
  tenon_status (*share)(void *self, uint32_t slot, const int32_t *tokens, uint32_t n, tenon_reason *why);
} tenon_kv_cache;

#ifdef __cplusplus
}
#endif
#endif
