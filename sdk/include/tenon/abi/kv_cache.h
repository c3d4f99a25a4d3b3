/* kv_cache/1: a cache decides where keys and values live.  C11 and C++20.
 *
 * PLACE IS NOT POSITION.  A row of a step has a position, which decides its rotary angle and its mask, and a place: the CELL of
 * the cache that holds its key and value.  Row i of a sequence, counted from the sequence's first row in the step, has the
 * ORDER KV_LEN + i.  In a chain a row's order is its position; in a tree of drafts siblings share a position and differ in
 * order.  What survives a step is a chain again, so cells from before a step have one number for both.
 *
 * WHAT A ROW SEES, whatever the cache:
 *   - A row sees OLD cells, which were in use before the step, each at the position that the view's rule gives, unless a window
 *     hides them.  A cell that is the place of any row of this step is an old cell for no row.
 *   - Where the view has spans (most_spans), of the old cells only those in the spans that were chosen for the row.
 *   - A row sees cells of THIS STEP: its own and those of its ancestors through TENON_STEP_PARENT.  The cell of row r is
 *     place[r], its position is POS[r].
 * Windows are about positions: a row at position n sees positions above n - window.  The view's window never hides positions
 * below `sinks`; the layer's own (tenon_attn.window) may hide any.  Attention always reads back what the cache stored, this
 * step's keys too, so that verifying k rows equals decoding them one by one. */
#ifndef TENON_ABI_KV_CACHE_H
#define TENON_ABI_KV_CACHE_H

#include "tenon/abi/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* This says how the keys, or the values, are coded.  Frozen.  tenon/sdk/kv_codec.h has a functor for each codec. */
typedef struct tenon_kv_plane {
  uint32_t codec; /* f32, f16, bf16, or i8, f8e4m3, u8 (two 4-bit numbers a byte): a number times the scale of its cell and head */
  uint32_t scale; /* f32 or f16: there is one number for each cell and head; 0 = there are no scales */
} tenon_kv_plane;

typedef struct tenon_kv_format {
  tenon_head h;
  tenon_kv_plane k, v;
  /* 1: keys are stored after rope.  0: before it, and the reader turns them (see RENUMBERED): the append then stands before
   * ROPE in the chain, no scheme is offered that ROPE, and attention claims it for its queries or the pairing is refused. */
  uint32_t rotated, reserved;
} tenon_kv_format;

/* The rule says which position an old cell c of a sequence holds. */
enum {
  TENON_POS_LINEAR = 1, /* it holds position c, unless the layer's window hides c from all rows to come; c < KV_LEN are old */
  TENON_POS_RING,       /* it holds c if c < sinks, else the largest p < KV_LEN with (p - sinks) % ring == c - sinks */
  TENON_POS_TABLE       /* it holds what view.pos says; the cell is not old if that is -1, or KV_LEN or above */
};
/* Under LINEAR and RING the place of the row of order o is the cell that the rule gives o, so that a reader of chains needs
 * no more than positions. */

enum {
  /* Pages, places, lengths and positions are apart for each KV head: an axis of heads stands after slot, row or page. */
  TENON_KV_HEADS_APART = 1,
  /* Keys are stored before rope, and an index of the rope's table is not a position.  For a row at position n let
   * d = max(0, n + 1 - (sinks + window)): the query has index n - d, a sink its position, any other cell of position p the
   * index p - d.  No index reaches sinks + window, so the table never needs more rows.  Without the flag an index is a
   * position.  Xiao et al., arXiv:2309.17453. */
  TENON_KV_RENUMBERED = 2,
  /* The view has a tail of newest tokens (view.recent).  4 is kKvHadamard of tenon/sdk/kv_layout.h. */
  TENON_KV_RECENT = 8,
  /* Keys in u8 have zeros and steps for each dimension, which view.key_group cells share. */
  TENON_KV_CHANNEL_KEYS = 16
};

typedef struct tenon_kv_view { /* a view has everything that a reader or writer of one layer's cache needs */
  tenon_head h;
  const tenon_kv_format *format; /* it lives as long as the cache */
  uint32_t flags;                /* TENON_KV_*, and kKvHadamard of tenon/sdk/kv_layout.h */
  uint32_t heads, k_dim, v_dim;
  uint32_t page_cells; /* a power of two: cell c of a sequence lies in column c / page_cells of the table of pages */
  uint32_t columns;    /* that table has so many */
  uint32_t pos_rule;   /* TENON_POS_* */
  uint32_t sinks;      /* so many first positions the window never hides; with RING they have the first cells */
  uint32_t ring;       /* RING: so many cells are used in turn */
  uint32_t window;     /* the cache's own, in positions; 0 = unlimited */
  /* The policy wants softmax weights: attention adds those of the step's last weight_rows rows of each sequence, over rows and
   * over the query heads of a KV head, and writes the sum of every cell to `weights`, 0 for cells that none of them sees.
   * Slots without rows in the step keep what they have.  0 = the policy does not want them, and they cost nothing. */
  uint32_t weight_rows;
  tenon_tid k, v;             /* the planes: (pages, page_cells, heads, dim), with the strides below */
  tenon_tid k_scale, v_scale; /* (pages, page_cells, heads), if the format has scales */
  tenon_tid pages;            /* i32[slots][columns]; [slots][heads][columns] if heads are apart */
  tenon_tid place;            /* i32[rows]: the cell of each row of the step; [rows][heads] if heads are apart */
  tenon_tid used;             /* TABLE: i32[slots]: old cells are below it; [slots][heads] if heads are apart */
  tenon_tid pos;              /* TABLE: i32[pages][page_cells]; [pages][heads][page_cells] if heads are apart */
  tenon_tid weights;          /* f32[slots][heads][columns * page_cells] */
  int64_t k_stride[3], v_stride[3], ks_stride[3], vs_stride[3]; /* bytes from one page, cell, head to the next */
  tenon_id group;                                               /* layers of one group share pages and lengths */
  /* Spans: cells [s * span_cells, (s + 1) * span_cells) are span s, under LINEAR without a window of the view and with keys after
   * rope.  The cache chooses for each row and KV head the spans whose old cells the row sees, once its queries are known
   * (record_choice).  Rows of a sequence that has more than chosen_rows rows in the step see all.  most_spans 0 = all rows do. */
  uint32_t chosen_rows;
  uint32_t span_cells; /* a power of two, 16 at least */
  uint32_t most_spans; /* at most so many spans are chosen for a row and KV head */
  tenon_tid chosen;    /* i32[rows][heads][1 + most_spans]: how many, -1 = the row sees all (only where there are more rows); then their numbers, ascending */
  /* With RECENT a second view holds the same tokens in another format, as far back as its rows need them: a row at position n reads
   * what it sees at positions above n - recent through recent_view, whose cells are those of a layer with that window, and
   * everything else through this view.  The softmax is over both.  Both are LINEAR, with keys after rope, and have no window of their
   * own, no spans and no weights; their flags agree but for RECENT and CHANNEL_KEYS.  Every append writes to both.  recent_view
   * lives as long as the cache. */
  uint32_t recent;
  /* With CHANNEL_KEYS, which goes with RECENT: cells [g * key_group, (g + 1) * key_group) are group g.  k_scale has for each group and
   * head the zeros and then the steps of all dimensions, (pages, page_cells / key_group, heads, 2 * k_dim), and an element is the
   * zero of its dimension plus its code, 0 to 15, times the step.  Keys of a group are there once the last of its cells has been
   * appended: key_group is a power of two, and recent no less, so that no row sees a group before. */
  uint32_t key_group;
  const struct tenon_kv_view *recent_view;
} tenon_kv_view;

typedef struct tenon_kv_geometry { /* the cache learns from it what one layer of the model stores */
  tenon_head h;
  uint32_t layer, heads, k_dim, v_dim;
  uint32_t window, reserved; /* the layer's own mask, in positions, which the cache cannot choose; 0 = unlimited */
} tenon_kv_geometry;

/* The host allocates and owns the stores, as the footprint asks for them.  view() and the recording functions get their ids. */
typedef struct tenon_kv_stores {
  tenon_head h;
  const tenon_tid *store; /* [n_stores of the footprint] */
} tenon_kv_stores;

typedef struct tenon_kv_cache {
  tenon_head h;
  /* [setup] Before plan, it says whether it can hold this layer under these bounds, the largest of any program.  REFUSED, with
   * the reason: it cannot.  Else `out` is the prototype of the layer's view, with tensors and strides 0; attention's claim gets it. */
  tenon_status (*claim)(void *self, const tenon_kv_geometry *g, const tenon_bounds *b, tenon_kv_view *out,
                        tenon_reason *why);
  /* [setup] It is called once, before any recording, with all n layers (g[i] describes layer i) and the largest bounds.
   * b->kv_len is the capacity in tokens; with TENON_FOOTPRINT_ENDLESS in the footprint's flags sequences may grow past it. */
  tenon_status (*plan)(void *self, const tenon_kv_geometry *const *g, uint32_t n, const tenon_bounds *b,
                       tenon_footprint *out, tenon_reason *why);
  /* [setup] It gets the addresses of the stores, which are allocated and zero by then. */
  tenon_status (*attach)(void *self, void *const *store, void *queue, tenon_reason *why);
  tenon_status (*view)(void *self, uint32_t layer, const tenon_kv_stores *s, const tenon_recorder *rec, tenon_kv_view *out,
                       tenon_reason *why); /* [record] */
  /* [record] It is called once a program, before anything else, and emits ops that fill the cache's own tensors (places,
   * lengths, positions) from the step state, so that captured steps go on without the host.  NULL: the cache has none. */
  tenon_status (*record_begin)(void *self, const tenon_kv_stores *s, const tenon_recorder *rec, tenon_reason *why);
  /* The next two stand in for an attention that does not append, or has no reader for the codecs.  [record], never NULL.
   * record_append writes the step's rows to their places: k, v are f32 (rows, heads * dim), and rows may be strided. */
  tenon_status (*record_append)(void *self, uint32_t layer, const tenon_kv_stores *s, tenon_tid k, tenon_tid v,
                                const tenon_recorder *rec, tenon_reason *why);
  /* record_dequant copies the layer's cells to other codecs in every step: rule, cells and `rotated` stay as they are. */
  tenon_status (*record_dequant)(void *self, uint32_t layer, const tenon_kv_stores *s, const tenon_kv_format *want,
                                 const tenon_recorder *rec, tenon_kv_view *out, tenon_reason *why);
  /* [record] It is called once a program, after verification, if the bounds allow trees: the cells of the rows in
   * TENON_STEP_SURVIVOR become those of the orders from KV_LEN on.  The survivors of a chain lie there already. */
  tenon_status (*record_commit)(void *self, const tenon_kv_stores *s, const tenon_recorder *rec, tenon_reason *why);
  /* [host] reserve makes room for kv_len tokens in the slot, an upper bound of what the step leaves there; NO_SPACE: the
   * scheduler is asked whom to pre-empt.  fork gives slot `to` the first kv_len tokens of `from`; REFUSED as by truncate. */
  tenon_status (*reserve)(void *self, uint32_t slot, uint32_t kv_len, tenon_reason *why);
  tenon_status (*fork)(void *self, uint32_t from, uint32_t to, uint32_t kv_len, void *queue, tenon_reason *why);
  /* [host] It keeps the first kv_len tokens; 0 frees the slot.  REFUSED: the cache no longer has what a sequence of that length
   * sees. */
  tenon_status (*truncate)(void *self, uint32_t slot, uint32_t kv_len, tenon_reason *why);
  tenon_status (*publish)(void *self, void *queue, tenon_reason *why); /* [host] It enqueues the tables that have changed. */
  /* [host] It gives a sequence's cache as bytes, tagged with the format.  dst NULL: it only sets *bytes.  REFUSED as by truncate. */
  tenon_status (*export_sequence)(void *self, uint32_t slot, uint32_t kv_len, void *queue, void *dst, uint64_t *bytes,
                                  tenon_reason *why);
  tenon_status (*import_sequence)(void *self, uint32_t slot, uint32_t kv_len, void *queue, const void *src, uint64_t bytes,
                                  tenon_reason *why);
  /* [any] It says how many bytes of live keys and values a sequence of that length has, for counters and costs. */
  uint64_t (*used_bytes)(void *self, uint32_t kv_len);
  /* [host] It says how many pages no sequence holds, and how many tokens a page has.  NULL: every slot has room for the whole
   * capacity. */
  uint32_t (*free_pages)(void *self, uint32_t *page_tokens);
  /* Sequences that begin alike may share cells.  All three, or all NULL: the cache then finds nothing again.  A cache compares
   * the tokens themselves, never only a hash of them; what it found stays right, whoever else holds it, writes on or ends.  A page
   * that is found and that no sequence holds counts as free, and is lost where the room is needed.
   * [host] find returns the length of the longest beginning of these n tokens that can be adopted.  Where layers have windows, not
   * every shorter beginning can be.  *held becomes the number of its tokens in pages that a sequence holds: to adopt these takes no
   * free page. */
  uint32_t (*find)(void *self, const int32_t *tokens, uint32_t n, uint32_t *held);
  /* [host] adopt gives the beginning that find would find to a slot that has nothing.  *kv_len becomes its length, at most n.  The
   * host does not ask for a sequence's last token, since it wants the logits of that row. */
  tenon_status (*adopt)(void *self, uint32_t slot, const int32_t *tokens, uint32_t n, uint32_t *kv_len, tenon_reason *why);
  /* [host] share says that the slot's first n tokens are these and may be found from now on.  Steps that are launched have written
   * their cells, and no step will write these again unless the slot is cut below n.  n = 0: none of the slot's cells may be found
   * any more, since its sequence has failed. */
  tenon_status (*share)(void *self, uint32_t slot, const int32_t *tokens, uint32_t n, tenon_reason *why);
  /* [record] A cache has it if any of its views has spans.  It is called before each attention over such a layer, when the step's keys
   * and values are in their cells and rope has turned its queries, and emits the ops that fill view.chosen.  Layers may share that
   * tensor, since a layer's choice is read before the next layer's is made.  q: f32 (rows, q_heads * k_dim), and rows may be
   * strided. */
  tenon_status (*record_choice)(void *self, uint32_t layer, const tenon_kv_stores *s, tenon_tid q, const tenon_recorder *rec,
                                tenon_reason *why);
} tenon_kv_cache;

#ifdef __cplusplus
}
#endif
#endif
