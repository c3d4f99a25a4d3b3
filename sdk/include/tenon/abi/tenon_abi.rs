// The binary boundary for Rust, as the C headers beside this file have it: what a field or function means stands there.
// Written by scripts/abi_layout.py; after a change of a header in this folder: python3 scripts/abi_layout.py
//   mod abi { include!(concat!(env!("TENON_INCLUDE"), "/tenon/abi/tenon_abi.rs")); }
#[allow(unused_imports)]
use std::os::raw::{c_char, c_int, c_void};

// Every struct has a constant NEW, its head filled in and all else 0: write tenon_op { name, ..tenon_op::NEW }, and a
// field that is added changes nothing.

// The head of a struct that grows: see types.h.
pub const fn head(size: usize) -> tenon_head {
    tenon_head { size: size as u32, major: 1, minor: 0 }
}

pub const TENON_LAYOUT_ATTENTION: &str = "ac5d463a8c59d7c7";
pub const TENON_LAYOUT_DEVICE: &str = "0c2b211e0d442ded";
pub const TENON_LAYOUT_DRAFT: &str = "177df5f2318187e0";
pub const TENON_LAYOUT_GRAMMAR: &str = "7d4c5de3086cdb8e";
pub const TENON_LAYOUT_KV_CACHE: &str = "25f663443518be55";
pub const TENON_LAYOUT_OP: &str = "58e9379def2b0ce6";
pub const TENON_LAYOUT_QUANTIZATION: &str = "92f564ffe5218607";
pub const TENON_LAYOUT_SAMPLER: &str = "92f57e073110491f";
pub const TENON_LAYOUT_SCHEDULER: &str = "7e4ebad5e21a3124";

// attention.h
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_attn {
    pub h: tenon_head,
    pub q_heads: u32,
    pub kv_heads: u32,
    pub k_dim: u32,
    pub v_dim: u32,
    pub window: u32,
    pub scale: f32,
    pub softcap: f32,
    pub out_format: u32,
    pub pro: *const tenon_chain,
}
unsafe impl Sync for tenon_attn {}
impl tenon_attn {
    pub const NEW: tenon_attn = tenon_attn { h: head(48), q_heads: 0, kv_heads: 0, k_dim: 0, v_dim: 0, window: 0, scale: 0.0, softcap: 0.0, out_format: 0, pro: core::ptr::null() };
}
const _: () = assert!(core::mem::size_of::<tenon_attn>() == 48);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_attn_call {
    pub h: tenon_head,
    pub q: tenon_tid,
    pub out: tenon_tid,
    pub kv: *const tenon_kv_view,
    pub pro: *const tenon_chain,
    pub claim: *const tenon_claim,
    pub only_out_rows: u32,
    pub reserved: u32,
}
unsafe impl Sync for tenon_attn_call {}
impl tenon_attn_call {
    pub const NEW: tenon_attn_call = tenon_attn_call { h: head(48), q: 0, out: 0, kv: core::ptr::null(), pro: core::ptr::null(), claim: core::ptr::null(), only_out_rows: 0, reserved: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_attn_call>() == 48);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_attention {
    pub h: tenon_head,
    pub row_invariant_max: u32,
    pub leaves_links: u32,
    pub claim: Option<unsafe extern "C" fn(*mut c_void, *const tenon_attn, *const tenon_kv_view, *const tenon_bounds, *mut tenon_claim, *mut tenon_reason) -> tenon_status>,
    pub record: Option<unsafe extern "C" fn(*mut c_void, *const tenon_attn, *const tenon_attn_call, *const tenon_recorder, *mut tenon_reason) -> tenon_status>,
    pub preferred_format: Option<unsafe extern "C" fn(*mut c_void, *mut tenon_kv_format, *mut tenon_reason) -> tenon_status>,
}
unsafe impl Sync for tenon_attention {}
impl tenon_attention {
    pub const NEW: tenon_attention = tenon_attention { h: head(40), row_invariant_max: 0, leaves_links: 0, claim: None, record: None, preferred_format: None };
}
const _: () = assert!(core::mem::size_of::<tenon_attention>() == 40);

// device.h
pub const TENON_ISA_AVX2: u32 = 1;
pub const TENON_ISA_AVX512: u32 = 2;
pub const TENON_ISA_AVX512_VNNI: u32 = 4;
pub const TENON_ISA_AVX512_BF16: u32 = 8;
pub const TENON_ISA_AVX_VNNI: u32 = 16;
pub const TENON_ISA_AVX512_VBMI: u32 = 32;
pub const TENON_DEVICE_WALKS: u32 = 1;
pub const TENON_DEVICE_ZEROES: u32 = 2;
pub const TENON_DEVICE_OVERLAPS: u32 = 4;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_generated {
    pub h: tenon_head,
    pub format: tenon_format,
    pub reserved: u32,
    pub key: u64,
    pub first: u64,
    pub count: u64,
    pub table: *const c_void,
}
unsafe impl Sync for tenon_generated {}
impl tenon_generated {
    pub const NEW: tenon_generated = tenon_generated { h: head(48), format: 0, reserved: 0, key: 0, first: 0, count: 0, table: core::ptr::null() };
}
const _: () = assert!(core::mem::size_of::<tenon_generated>() == 48);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_draft_pass {
    pub h: tenon_head,
    pub pass: u32,
    pub rows_per_seq: u32,
    pub next: tenon_tid,
    pub live: tenon_tid,
    pub token: tenon_tid,
    pub pos: tenon_tid,
    pub slot: tenon_tid,
    pub parent: tenon_tid,
    pub seq_row: tenon_tid,
    pub kv_len: tenon_tid,
    pub out_row: tenon_tid,
    pub choice_live: tenon_tid,
    pub choice_row: tenon_tid,
}
unsafe impl Sync for tenon_draft_pass {}
impl tenon_draft_pass {
    pub const NEW: tenon_draft_pass = tenon_draft_pass { h: head(60), pass: 0, rows_per_seq: 0, next: 0, live: 0, token: 0, pos: 0, slot: 0, parent: 0, seq_row: 0, kv_len: 0, out_row: 0, choice_live: 0, choice_row: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_draft_pass>() == 60);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_device {
    pub h: tenon_head,
    pub self_: *mut c_void,
    pub kind: *const c_char,
    pub name: *const c_char,
    pub ordinal: u32,
    pub units: u32,
    pub arch: u32,
    pub flags: u32,
    pub memory: u64,
    pub shared_per_unit: u64,
    pub isa: u64,
    pub alloc: Option<unsafe extern "C" fn(*mut c_void, u32, u64, *mut *mut c_void, *mut tenon_reason) -> tenon_status>,
    pub release: Option<unsafe extern "C" fn(*mut c_void, u32, *mut c_void, u64)>,
    pub copy: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *const c_void, u64, *mut tenon_reason) -> tenon_status>,
    pub queue: Option<unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut tenon_reason) -> tenon_status>,
    pub wait: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut tenon_reason) -> tenon_status>,
    pub capture_begin: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut tenon_reason) -> tenon_status>,
    pub capture_end: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut *mut c_void, *mut tenon_reason) -> tenon_status>,
    pub replay: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *mut tenon_reason) -> tenon_status>,
    pub graph_release: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    pub record_step_op: Option<unsafe extern "C" fn(*mut c_void, *const tenon_fop, tenon_tid, tenon_tid, *const tenon_recorder, *mut tenon_reason) -> tenon_status>,
    pub record_draft_pass: Option<unsafe extern "C" fn(*mut c_void, *const tenon_draft_pass, *const tenon_recorder, *mut tenon_reason) -> tenon_status>,
    pub generate: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *const tenon_generated, *mut tenon_reason) -> tenon_status>,
    pub read_rate: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut u64, *mut f64, *mut tenon_reason) -> tenon_status>,
}
unsafe impl Sync for tenon_device {}
impl tenon_device {
    pub const NEW: tenon_device = tenon_device { h: head(176), self_: core::ptr::null_mut(), kind: core::ptr::null(), name: core::ptr::null(), ordinal: 0, units: 0, arch: 0, flags: 0, memory: 0, shared_per_unit: 0, isa: 0, alloc: None, release: None, copy: None, queue: None, wait: None, capture_begin: None, capture_end: None, replay: None, graph_release: None, record_step_op: None, record_draft_pass: None, generate: None, read_rate: None };
}
const _: () = assert!(core::mem::size_of::<tenon_device>() == 176);

// draft.h
pub const TENON_DRAFT_TREES: u32 = 1;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_draft {
    pub h: tenon_head,
    pub flags: u32,
    pub reserved: u32,
    pub max_tokens: Option<unsafe extern "C" fn(*mut c_void) -> u32>,
    pub propose: Option<unsafe extern "C" fn(*mut c_void, u32, *const i32, u32, *mut i32, *mut i32, u32, *mut u32, *mut tenon_reason) -> tenon_status>,
    pub forget: Option<unsafe extern "C" fn(*mut c_void, u32)>,
}
unsafe impl Sync for tenon_draft {}
impl tenon_draft {
    pub const NEW: tenon_draft = tenon_draft { h: head(40), flags: 0, reserved: 0, max_tokens: None, propose: None, forget: None };
}
const _: () = assert!(core::mem::size_of::<tenon_draft>() == 40);

// grammar.h
pub const TENON_F_MASK: u32 = 68;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_vocabulary {
    pub h: tenon_head,
    pub tokens: u32,
    pub ends: u32,
    pub bytes: *const c_char,
    pub offset: *const u64,
    pub end: *const i32,
}
unsafe impl Sync for tenon_vocabulary {}
impl tenon_vocabulary {
    pub const NEW: tenon_vocabulary = tenon_vocabulary { h: head(40), tokens: 0, ends: 0, bytes: core::ptr::null(), offset: core::ptr::null(), end: core::ptr::null() };
}
const _: () = assert!(core::mem::size_of::<tenon_vocabulary>() == 40);
pub const TENON_GRAMMAR_JSON_SCHEMA: u32 = 1;
pub const TENON_GRAMMAR_REGEX: u32 = 2;
pub const TENON_GRAMMAR_EBNF: u32 = 3;
pub const TENON_GRAMMAR_CLOSED: u32 = 1;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_grammar_source {
    pub h: tenon_head,
    pub form: u32,
    pub flags: u32,
    pub text: *const c_char,
    pub bytes: u64,
}
unsafe impl Sync for tenon_grammar_source {}
impl tenon_grammar_source {
    pub const NEW: tenon_grammar_source = tenon_grammar_source { h: head(32), form: 0, flags: 0, text: core::ptr::null(), bytes: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_grammar_source>() == 32);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_grammar {
    pub h: tenon_head,
    pub prepare: Option<unsafe extern "C" fn(*mut c_void, *const tenon_vocabulary, *mut tenon_reason) -> tenon_status>,
    pub compile: Option<unsafe extern "C" fn(*mut c_void, *const tenon_grammar_source, *mut *mut c_void, *mut u64, *mut tenon_reason) -> tenon_status>,
    pub release: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    pub start: Option<unsafe extern "C" fn(*mut c_void, *const c_void, *mut *mut c_void, *mut tenon_reason) -> tenon_status>,
    pub stop: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    pub accept: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, i32, *mut tenon_reason) -> tenon_status>,
    pub mask: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut u32, *mut tenon_reason) -> tenon_status>,
    pub rewind: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, u32, *mut tenon_reason) -> tenon_status>,
}
unsafe impl Sync for tenon_grammar {}
impl tenon_grammar {
    pub const NEW: tenon_grammar = tenon_grammar { h: head(72), prepare: None, compile: None, release: None, start: None, stop: None, accept: None, mask: None, rewind: None };
}
const _: () = assert!(core::mem::size_of::<tenon_grammar>() == 72);

// kv_cache.h
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_kv_plane {
    pub codec: u32,
    pub scale: u32,
}
unsafe impl Sync for tenon_kv_plane {}
impl tenon_kv_plane {
    pub const NEW: tenon_kv_plane = tenon_kv_plane { codec: 0, scale: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_kv_plane>() == 8);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_kv_format {
    pub h: tenon_head,
    pub k: tenon_kv_plane,
    pub v: tenon_kv_plane,
    pub rotated: u32,
    pub reserved: u32,
}
unsafe impl Sync for tenon_kv_format {}
impl tenon_kv_format {
    pub const NEW: tenon_kv_format = tenon_kv_format { h: head(32), k: tenon_kv_plane::NEW, v: tenon_kv_plane::NEW, rotated: 0, reserved: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_kv_format>() == 32);
pub const TENON_POS_LINEAR: u32 = 1;
pub const TENON_POS_RING: u32 = 2;
pub const TENON_POS_TABLE: u32 = 3;
pub const TENON_KV_HEADS_APART: u32 = 1;
pub const TENON_KV_RENUMBERED: u32 = 2;
pub const TENON_KV_RECENT: u32 = 8;
pub const TENON_KV_CHANNEL_KEYS: u32 = 16;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_kv_view {
    pub h: tenon_head,
    pub format: *const tenon_kv_format,
    pub flags: u32,
    pub heads: u32,
    pub k_dim: u32,
    pub v_dim: u32,
    pub page_cells: u32,
    pub columns: u32,
    pub pos_rule: u32,
    pub sinks: u32,
    pub ring: u32,
    pub window: u32,
    pub weight_rows: u32,
    pub k: tenon_tid,
    pub v: tenon_tid,
    pub k_scale: tenon_tid,
    pub v_scale: tenon_tid,
    pub pages: tenon_tid,
    pub place: tenon_tid,
    pub used: tenon_tid,
    pub pos: tenon_tid,
    pub weights: tenon_tid,
    pub k_stride: [i64; 3],
    pub v_stride: [i64; 3],
    pub ks_stride: [i64; 3],
    pub vs_stride: [i64; 3],
    pub group: tenon_id,
    pub chosen_rows: u32,
    pub span_cells: u32,
    pub most_spans: u32,
    pub chosen: tenon_tid,
    pub recent: u32,
    pub key_group: u32,
    pub recent_view: *const tenon_kv_view,
}
unsafe impl Sync for tenon_kv_view {}
impl tenon_kv_view {
    pub const NEW: tenon_kv_view = tenon_kv_view { h: head(232), format: core::ptr::null(), flags: 0, heads: 0, k_dim: 0, v_dim: 0, page_cells: 0, columns: 0, pos_rule: 0, sinks: 0, ring: 0, window: 0, weight_rows: 0, k: 0, v: 0, k_scale: 0, v_scale: 0, pages: 0, place: 0, used: 0, pos: 0, weights: 0, k_stride: [0; 3], v_stride: [0; 3], ks_stride: [0; 3], vs_stride: [0; 3], group: 0, chosen_rows: 0, span_cells: 0, most_spans: 0, chosen: 0, recent: 0, key_group: 0, recent_view: core::ptr::null() };
}
const _: () = assert!(core::mem::size_of::<tenon_kv_view>() == 232);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_kv_geometry {
    pub h: tenon_head,
    pub layer: u32,
    pub heads: u32,
    pub k_dim: u32,
    pub v_dim: u32,
    pub window: u32,
    pub reserved: u32,
}
unsafe impl Sync for tenon_kv_geometry {}
impl tenon_kv_geometry {
    pub const NEW: tenon_kv_geometry = tenon_kv_geometry { h: head(32), layer: 0, heads: 0, k_dim: 0, v_dim: 0, window: 0, reserved: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_kv_geometry>() == 32);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_kv_stores {
    pub h: tenon_head,
    pub store: *const tenon_tid,
}
unsafe impl Sync for tenon_kv_stores {}
impl tenon_kv_stores {
    pub const NEW: tenon_kv_stores = tenon_kv_stores { h: head(16), store: core::ptr::null() };
}
const _: () = assert!(core::mem::size_of::<tenon_kv_stores>() == 16);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_kv_cache {
    pub h: tenon_head,
    pub claim: Option<unsafe extern "C" fn(*mut c_void, *const tenon_kv_geometry, *const tenon_bounds, *mut tenon_kv_view, *mut tenon_reason) -> tenon_status>,
    pub plan: Option<unsafe extern "C" fn(*mut c_void, *const *const tenon_kv_geometry, u32, *const tenon_bounds, *mut tenon_footprint, *mut tenon_reason) -> tenon_status>,
    pub attach: Option<unsafe extern "C" fn(*mut c_void, *const *mut c_void, *mut c_void, *mut tenon_reason) -> tenon_status>,
    pub view: Option<unsafe extern "C" fn(*mut c_void, u32, *const tenon_kv_stores, *const tenon_recorder, *mut tenon_kv_view, *mut tenon_reason) -> tenon_status>,
    pub record_begin: Option<unsafe extern "C" fn(*mut c_void, *const tenon_kv_stores, *const tenon_recorder, *mut tenon_reason) -> tenon_status>,
    pub record_append: Option<unsafe extern "C" fn(*mut c_void, u32, *const tenon_kv_stores, tenon_tid, tenon_tid, *const tenon_recorder, *mut tenon_reason) -> tenon_status>,
    pub record_dequant: Option<unsafe extern "C" fn(*mut c_void, u32, *const tenon_kv_stores, *const tenon_kv_format, *const tenon_recorder, *mut tenon_kv_view, *mut tenon_reason) -> tenon_status>,
    pub record_commit: Option<unsafe extern "C" fn(*mut c_void, *const tenon_kv_stores, *const tenon_recorder, *mut tenon_reason) -> tenon_status>,
    pub reserve: Option<unsafe extern "C" fn(*mut c_void, u32, u32, *mut tenon_reason) -> tenon_status>,
    pub fork: Option<unsafe extern "C" fn(*mut c_void, u32, u32, u32, *mut c_void, *mut tenon_reason) -> tenon_status>,
    pub truncate: Option<unsafe extern "C" fn(*mut c_void, u32, u32, *mut tenon_reason) -> tenon_status>,
    pub publish: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut tenon_reason) -> tenon_status>,
    pub export_sequence: Option<unsafe extern "C" fn(*mut c_void, u32, u32, *mut c_void, *mut c_void, *mut u64, *mut tenon_reason) -> tenon_status>,
    pub import_sequence: Option<unsafe extern "C" fn(*mut c_void, u32, u32, *mut c_void, *const c_void, u64, *mut tenon_reason) -> tenon_status>,
    pub used_bytes: Option<unsafe extern "C" fn(*mut c_void, u32) -> u64>,
    pub free_pages: Option<unsafe extern "C" fn(*mut c_void, *mut u32) -> u32>,
    pub find: Option<unsafe extern "C" fn(*mut c_void, *const i32, u32, *mut u32) -> u32>,
    pub adopt: Option<unsafe extern "C" fn(*mut c_void, u32, *const i32, u32, *mut u32, *mut tenon_reason) -> tenon_status>,
    pub share: Option<unsafe extern "C" fn(*mut c_void, u32, *const i32, u32, *mut tenon_reason) -> tenon_status>,
    pub record_choice: Option<unsafe extern "C" fn(*mut c_void, u32, *const tenon_kv_stores, tenon_tid, *const tenon_recorder, *mut tenon_reason) -> tenon_status>,
}
unsafe impl Sync for tenon_kv_cache {}
impl tenon_kv_cache {
    pub const NEW: tenon_kv_cache = tenon_kv_cache { h: head(168), claim: None, plan: None, attach: None, view: None, record_begin: None, record_append: None, record_dequant: None, record_commit: None, reserve: None, fork: None, truncate: None, publish: None, export_sequence: None, import_sequence: None, used_bytes: None, free_pages: None, find: None, adopt: None, share: None, record_choice: None };
}
const _: () = assert!(core::mem::size_of::<tenon_kv_cache>() == 168);

// op.h
pub const TENON_ARG_VECTOR: u32 = 1;
pub const TENON_ARG_TABLE: u32 = 2;
pub const TENON_ARG_ROWS: u32 = 3;
pub const TENON_ARG_NUMBER: u32 = 4;
pub const TENON_ARG_INTEGER: u32 = 5;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_op_arg {
    pub name: *const c_char,
    pub doc: *const c_char,
    pub kind: u32,
    pub index: u32,
}
unsafe impl Sync for tenon_op_arg {}
impl tenon_op_arg {
    pub const NEW: tenon_op_arg = tenon_op_arg { name: core::ptr::null(), doc: core::ptr::null(), kind: 0, index: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_op_arg>() == 24);
pub const TENON_SMALL_OP_IN_PLACE: u32 = 1;
pub const TENON_SMALL_OP_BY_COLUMN: u32 = 2;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_small_op {
    pub h: tenon_head,
    pub id: tenon_id,
    pub flags: u32,
    pub n_args: u32,
    pub arg: *const tenon_op_arg,
    pub columns: Option<unsafe extern "C" fn(*mut c_void, *const tenon_fop, i64, *mut i64, *mut tenon_reason) -> tenon_status>,
    pub record: Option<unsafe extern "C" fn(*mut c_void, *const tenon_fop, tenon_tid, tenon_tid, *const tenon_recorder, *mut tenon_reason) -> tenon_status>,
}
unsafe impl Sync for tenon_small_op {}
impl tenon_small_op {
    pub const NEW: tenon_small_op = tenon_small_op { h: head(48), id: 0, flags: 0, n_args: 0, arg: core::ptr::null(), columns: None, record: None };
}
const _: () = assert!(core::mem::size_of::<tenon_small_op>() == 48);

// params.h
pub const TENON_PARAM_BOOL: u32 = 1;
pub const TENON_PARAM_INT: u32 = 2;
pub const TENON_PARAM_REAL: u32 = 3;
pub const TENON_PARAM_TEXT: u32 = 4;
pub const TENON_PARAM_REQUIRED: u32 = 1;
pub const TENON_PARAM_PER_REQUEST: u32 = 2;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_param_spec {
    pub h: tenon_head,
    pub name: *const c_char,
    pub doc: *const c_char,
    pub unit: *const c_char,
    pub r#type: u32,
    pub flags: u32,
    pub int_default: i64,
    pub int_min: i64,
    pub int_max: i64,
    pub real_default: f64,
    pub real_min: f64,
    pub real_max: f64,
    pub text_default: *const c_char,
    pub choices: *const c_char,
}
unsafe impl Sync for tenon_param_spec {}
impl tenon_param_spec {
    pub const NEW: tenon_param_spec = tenon_param_spec { h: head(104), name: core::ptr::null(), doc: core::ptr::null(), unit: core::ptr::null(), r#type: 0, flags: 0, int_default: 0, int_min: 0, int_max: 0, real_default: 0.0, real_min: 0.0, real_max: 0.0, text_default: core::ptr::null(), choices: core::ptr::null() };
}
const _: () = assert!(core::mem::size_of::<tenon_param_spec>() == 104);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_param_schema {
    pub h: tenon_head,
    pub count: u32,
    pub reserved: u32,
    pub spec: *const *const tenon_param_spec,
}
unsafe impl Sync for tenon_param_schema {}
impl tenon_param_schema {
    pub const NEW: tenon_param_schema = tenon_param_schema { h: head(24), count: 0, reserved: 0, spec: core::ptr::null() };
}
const _: () = assert!(core::mem::size_of::<tenon_param_schema>() == 24);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_param_value {
    pub integer: i64,
    pub real: f64,
    pub text: *const c_char,
}
unsafe impl Sync for tenon_param_value {}
impl tenon_param_value {
    pub const NEW: tenon_param_value = tenon_param_value { integer: 0, real: 0.0, text: core::ptr::null() };
}
const _: () = assert!(core::mem::size_of::<tenon_param_value>() == 24);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_params {
    pub h: tenon_head,
    pub count: u32,
    pub reserved: u32,
    pub value: *const tenon_param_value,
}
unsafe impl Sync for tenon_params {}
impl tenon_params {
    pub const NEW: tenon_params = tenon_params { h: head(24), count: 0, reserved: 0, value: core::ptr::null() };
}
const _: () = assert!(core::mem::size_of::<tenon_params>() == 24);

// plugin.h
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_note {
    pub abi_major: u16,
    pub abi_minor: u16,
    pub needs_minor: u16,
    pub reserved: u16,
    pub kind: [c_char; 16],
    pub name: [c_char; 48],
    pub device: [c_char; 16],
    pub schema_hash: [c_char; 24],
    pub layout_hash: [c_char; 24],
    pub targets: [c_char; 64],
}
unsafe impl Sync for tenon_note {}
impl tenon_note {
    pub const NEW: tenon_note = tenon_note { abi_major: 0, abi_minor: 0, needs_minor: 0, reserved: 0, kind: [0; 16], name: [0; 48], device: [0; 16], schema_hash: [0; 24], layout_hash: [0; 24], targets: [0; 64] };
}
const _: () = assert!(core::mem::size_of::<tenon_note>() == 200);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_note_section {
    pub owner_bytes: u32,
    pub descriptor_bytes: u32,
    pub r#type: u32,
    pub owner: [c_char; 8],
    pub note: tenon_note,
}
unsafe impl Sync for tenon_note_section {}
impl tenon_note_section {
    pub const NEW: tenon_note_section = tenon_note_section { owner_bytes: 0, descriptor_bytes: 0, r#type: 0, owner: [0; 8], note: tenon_note::NEW };
}
const _: () = assert!(core::mem::size_of::<tenon_note_section>() == 220);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_host {
    pub h: tenon_head,
    pub ctx: *mut c_void,
    pub alloc: Option<unsafe extern "C" fn(*mut c_void, u32, u64, *const c_char, *mut *mut c_void, *mut tenon_reason) -> tenon_status>,
    pub release: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    pub log: Option<unsafe extern "C" fn(*mut c_void, u32, *const c_char)>,
}
unsafe impl Sync for tenon_host {}
impl tenon_host {
    pub const NEW: tenon_host = tenon_host { h: head(40), ctx: core::ptr::null_mut(), alloc: None, release: None, log: None };
}
const _: () = assert!(core::mem::size_of::<tenon_host>() == 40);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_env {
    pub h: tenon_head,
    pub host: *const tenon_host,
    pub device: *const tenon_device,
    pub ordinal: u32,
    pub reserved: u32,
}
unsafe impl Sync for tenon_env {}
impl tenon_env {
    pub const NEW: tenon_env = tenon_env { h: head(32), host: core::ptr::null(), device: core::ptr::null(), ordinal: 0, reserved: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_env>() == 32);
pub const TENON_OWN_FORMULA: u32 = 1;
pub const TENON_OWN_TOKENS: u32 = 2;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_component {
    pub h: tenon_head,
    pub kind: *const c_char,
    pub name: *const c_char,
    pub device: *const c_char,
    pub doc: *const c_char,
    pub schema: *const tenon_param_schema,
    pub create: Option<unsafe extern "C" fn(*const tenon_params, *const tenon_env, *mut *mut c_void, *mut tenon_reason) -> tenon_status>,
    pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    pub interface: Option<unsafe extern "C" fn(*mut c_void, *const c_char) -> *const c_void>,
    pub own_rules: u32,
    pub reserved: u32,
}
unsafe impl Sync for tenon_component {}
impl tenon_component {
    pub const NEW: tenon_component = tenon_component { h: head(80), kind: core::ptr::null(), name: core::ptr::null(), device: core::ptr::null(), doc: core::ptr::null(), schema: core::ptr::null(), create: None, destroy: None, interface: None, own_rules: 0, reserved: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_component>() == 80);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_plugin {
    pub h: tenon_head,
    pub vendor: *const c_char,
    pub version: *const c_char,
    pub license: *const c_char,
    pub url: *const c_char,
    pub compiler: *const c_char,
    pub n_components: u32,
    pub reserved: u32,
    pub component: *const *const tenon_component,
    pub init: Option<unsafe extern "C" fn(*const tenon_host, *mut tenon_reason) -> tenon_status>,
}
unsafe impl Sync for tenon_plugin {}
impl tenon_plugin {
    pub const NEW: tenon_plugin = tenon_plugin { h: head(72), vendor: core::ptr::null(), version: core::ptr::null(), license: core::ptr::null(), url: core::ptr::null(), compiler: core::ptr::null(), n_components: 0, reserved: 0, component: core::ptr::null(), init: None };
}
const _: () = assert!(core::mem::size_of::<tenon_plugin>() == 72);
pub const TENON_ABI_MAJOR: u32 = 1;
pub const TENON_ABI_MINOR: u32 = 0;
pub const TENON_NOTE_TYPE: u32 = 0x7465;

// program.h
pub type tenon_tid = u32;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_bounds {
    pub h: tenon_head,
    pub rows: u32,
    pub seqs: u32,
    pub rows_per_seq: u32,
    pub out_rows: u32,
    pub kv_len: u32,
    pub slots: u32,
    pub steps_ahead: u32,
    pub trees: u32,
    pub reserved: u32,
}
unsafe impl Sync for tenon_bounds {}
impl tenon_bounds {
    pub const NEW: tenon_bounds = tenon_bounds { h: head(44), rows: 0, seqs: 0, rows_per_seq: 0, out_rows: 0, kv_len: 0, slots: 0, steps_ahead: 0, trees: 0, reserved: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_bounds>() == 44);
pub const TENON_STEP_LIVE: u32 = 1;
pub const TENON_STEP_TOKEN: u32 = 2;
pub const TENON_STEP_POS: u32 = 3;
pub const TENON_STEP_PLACE: u32 = 4;
pub const TENON_STEP_SLOT: u32 = 5;
pub const TENON_STEP_PARENT: u32 = 6;
pub const TENON_STEP_SEQ_SLOT: u32 = 7;
pub const TENON_STEP_SEQ_ROW: u32 = 8;
pub const TENON_STEP_KV_LEN: u32 = 9;
pub const TENON_STEP_OUT_ROW: u32 = 10;
pub const TENON_STEP_RNG: u32 = 11;
pub const TENON_STEP_ACCEPTED: u32 = 12;
pub const TENON_STEP_SURVIVOR: u32 = 13;
pub const TENON_STEP_NEXT: u32 = 14;
pub const TENON_READ: u32 = 1;
pub const TENON_WRITE: u32 = 2;
pub const TENON_READ_OLD: u32 = 4;
pub const TENON_WRITE_NEW: u32 = 8;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_operand {
    pub tensor: tenon_tid,
    pub access: u32,
}
unsafe impl Sync for tenon_operand {}
impl tenon_operand {
    pub const NEW: tenon_operand = tenon_operand { tensor: 0, access: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_operand>() == 8);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_launch {
    pub h: tenon_head,
    pub queue: *mut c_void,
    pub ptr: *const *mut c_void,
    pub scratch: *mut c_void,
    pub zeroed: *mut c_void,
    pub stable: u64,
    pub flags: u32,
    pub blocks: u32,
}
unsafe impl Sync for tenon_launch {}
impl tenon_launch {
    pub const NEW: tenon_launch = tenon_launch { h: head(56), queue: core::ptr::null_mut(), ptr: core::ptr::null(), scratch: core::ptr::null_mut(), zeroed: core::ptr::null_mut(), stable: 0, flags: 0, blocks: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_launch>() == 56);
pub const TENON_LAUNCH_OVERLAP: u32 = 1;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_part {
    pub h: tenon_head,
    pub launch: *const tenon_launch,
    pub phase: u32,
    pub begin: u32,
    pub end: u32,
    pub reserved: u32,
    pub thread_scratch: *mut c_void,
    pub why: *mut tenon_reason,
}
unsafe impl Sync for tenon_part {}
impl tenon_part {
    pub const NEW: tenon_part = tenon_part { h: head(48), launch: core::ptr::null(), phase: 0, begin: 0, end: 0, reserved: 0, thread_scratch: core::ptr::null_mut(), why: core::ptr::null_mut() };
}
const _: () = assert!(core::mem::size_of::<tenon_part>() == 48);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_cost {
    pub read: [f64; 3],
    pub written: [f64; 3],
    pub flops: [f64; 3],
}
unsafe impl Sync for tenon_cost {}
impl tenon_cost {
    pub const NEW: tenon_cost = tenon_cost { read: [0.0; 3], written: [0.0; 3], flops: [0.0; 3] };
}
const _: () = assert!(core::mem::size_of::<tenon_cost>() == 72);
pub const TENON_BLOCKS_SMALL: u32 = 1;
pub const TENON_BLOCKS_LARGE: u32 = 2;
pub const TENON_BLOCKS_WHOLE: u32 = 4;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_op {
    pub h: tenon_head,
    pub name: *const c_char,
    pub operand: *const tenon_operand,
    pub n_operands: u32,
    pub flags: u32,
    pub args: *const c_void,
    pub args_bytes: u32,
    pub blocks: u32,
    pub phases: u32,
    pub chunks: [u32; 4],
    pub scratch_bytes: u64,
    pub zeroed_bytes: u64,
    pub thread_scratch_bytes: u64,
    pub cost: tenon_cost,
    pub launch: Option<unsafe extern "C" fn(*mut c_void, *const c_void, *const tenon_launch, *mut tenon_reason) -> tenon_status>,
    pub part: Option<unsafe extern "C" fn(*mut c_void, *const c_void, *const tenon_part) -> tenon_status>,
    pub self_: *mut c_void,
}
unsafe impl Sync for tenon_op {}
impl tenon_op {
    pub const NEW: tenon_op = tenon_op { h: head(192), name: core::ptr::null(), operand: core::ptr::null(), n_operands: 0, flags: 0, args: core::ptr::null(), args_bytes: 0, blocks: 0, phases: 0, chunks: [0; 4], scratch_bytes: 0, zeroed_bytes: 0, thread_scratch_bytes: 0, cost: tenon_cost::NEW, launch: None, part: None, self_: core::ptr::null_mut() };
}
const _: () = assert!(core::mem::size_of::<tenon_op>() == 192);
pub const TENON_OP_FOREIGN: u32 = 1;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_recorder {
    pub h: tenon_head,
    pub ctx: *mut c_void,
    pub bounds: *const tenon_bounds,
    pub largest: *const tenon_bounds,
    pub temp: Option<unsafe extern "C" fn(*mut c_void, *const tenon_tensor) -> tenon_tid>,
    pub keep: Option<unsafe extern "C" fn(*mut c_void, *const tenon_tensor, *const c_char) -> tenon_tid>,
    pub slice: Option<unsafe extern "C" fn(*mut c_void, tenon_tid, *const tenon_tensor, u64) -> tenon_tid>,
    pub step: Option<unsafe extern "C" fn(*mut c_void, u32) -> tenon_tid>,
    pub describe: Option<unsafe extern "C" fn(*mut c_void, tenon_tid, *mut tenon_tensor)>,
    pub emit: Option<unsafe extern "C" fn(*mut c_void, *const tenon_op) -> tenon_status>,
}
unsafe impl Sync for tenon_recorder {}
impl tenon_recorder {
    pub const NEW: tenon_recorder = tenon_recorder { h: head(80), ctx: core::ptr::null_mut(), bounds: core::ptr::null(), largest: core::ptr::null(), temp: None, keep: None, slice: None, step: None, describe: None, emit: None };
}
const _: () = assert!(core::mem::size_of::<tenon_recorder>() == 80);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_fop {
    pub h: tenon_head,
    pub id: tenon_id,
    pub t: [tenon_tid; 4],
    pub f: [f32; 4],
    pub i: [i32; 8],
    pub live: tenon_tid,
    pub reserved: u32,
}
unsafe impl Sync for tenon_fop {}
impl tenon_fop {
    pub const NEW: tenon_fop = tenon_fop { h: head(88), id: 0, t: [0; 4], f: [0.0; 4], i: [0; 8], live: 0, reserved: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_fop>() == 88);
pub const TENON_F_RMSNORM: u32 = 1;
pub const TENON_F_BIAS: u32 = 2;
pub const TENON_F_ADD: u32 = 3;
pub const TENON_F_SILU_MUL: u32 = 4;
pub const TENON_F_QK_NORM: u32 = 5;
pub const TENON_F_ROPE: u32 = 6;
pub const TENON_F_KV_APPEND: u32 = 7;
pub const TENON_F_SOFTCAP: u32 = 8;
pub const TENON_F_LAYER_NORM: u32 = 9;
pub const TENON_F_SCALE: u32 = 10;
pub const TENON_F_GELU_MUL: u32 = 11;
pub const TENON_F_GATHER_ROWS: u32 = 64;
pub const TENON_F_VERIFY: u32 = 65;
pub const TENON_F_ADVANCE: u32 = 66;
pub const TENON_F_POOL: u32 = 67;
pub const TENON_F_TAKE: u32 = 69;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_chain {
    pub h: tenon_head,
    pub n: u32,
    pub reserved: u32,
    pub op: *const *const tenon_fop,
}
unsafe impl Sync for tenon_chain {}
impl tenon_chain {
    pub const NEW: tenon_chain = tenon_chain { h: head(24), n: 0, reserved: 0, op: core::ptr::null() };
}
const _: () = assert!(core::mem::size_of::<tenon_chain>() == 24);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_claim {
    pub h: tenon_head,
    pub pro: u32,
    pub epi: u32,
    pub variant: u32,
}
unsafe impl Sync for tenon_claim {}
impl tenon_claim {
    pub const NEW: tenon_claim = tenon_claim { h: head(20), pro: 0, epi: 0, variant: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_claim>() == 20);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_footprint {
    pub h: tenon_head,
    pub n_stores: u32,
    pub flags: u32,
    pub store_bytes: [u64; 8],
    pub load_bytes: u64,
    pub passes: u32,
    pub reserved: u32,
}
unsafe impl Sync for tenon_footprint {}
impl tenon_footprint {
    pub const NEW: tenon_footprint = tenon_footprint { h: head(96), n_stores: 0, flags: 0, store_bytes: [0; 8], load_bytes: 0, passes: 0, reserved: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_footprint>() == 96);
pub const TENON_FOOTPRINT_IN_PLACE: u32 = 1;
pub const TENON_FOOTPRINT_ENDLESS: u32 = 2;
pub const TENON_FOOTPRINT_WHOLE: u32 = 4;
pub const TENON_FOOTPRINT_EXACT: u32 = 8;
pub const TENON_MAX_PHASES: u32 = 4;
pub const TENON_MAX_OPERANDS: u32 = 64;
pub const TENON_MAX_STORES: u32 = 8;

// quantization.h
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_stored {
    pub name: *const c_char,
    pub format: tenon_format,
    pub rank: u32,
    pub dim: [i64; 4],
}
unsafe impl Sync for tenon_stored {}
impl tenon_stored {
    pub const NEW: tenon_stored = tenon_stored { name: core::ptr::null(), format: 0, rank: 0, dim: [0; 4] };
}
const _: () = assert!(core::mem::size_of::<tenon_stored>() == 48);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_matrix {
    pub name: *const c_char,
    pub n_tensors: u32,
    pub reserved: u32,
    pub tensor: *const tenon_stored,
}
unsafe impl Sync for tenon_matrix {}
impl tenon_matrix {
    pub const NEW: tenon_matrix = tenon_matrix { name: core::ptr::null(), n_tensors: 0, reserved: 0, tensor: core::ptr::null() };
}
const _: () = assert!(core::mem::size_of::<tenon_matrix>() == 24);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_linear {
    pub h: tenon_head,
    pub path: *const c_char,
    pub n_mats: u32,
    pub x_format: u32,
    pub y_format: u32,
    pub experts: u32,
    pub out_dim: *const i64,
    pub matrix: *const tenon_matrix,
    pub description: *const c_char,
    pub in_dim: i64,
    pub rows_wanted: u32,
    pub product_wanted: u32,
    pub pro: *const tenon_chain,
    pub epi: *const tenon_chain,
}
unsafe impl Sync for tenon_linear {}
impl tenon_linear {
    pub const NEW: tenon_linear = tenon_linear { h: head(88), path: core::ptr::null(), n_mats: 0, x_format: 0, y_format: 0, experts: 0, out_dim: core::ptr::null(), matrix: core::ptr::null(), description: core::ptr::null(), in_dim: 0, rows_wanted: 0, product_wanted: 0, pro: core::ptr::null(), epi: core::ptr::null() };
}
const _: () = assert!(core::mem::size_of::<tenon_linear>() == 88);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_linear_call {
    pub h: tenon_head,
    pub x: tenon_tid,
    pub y: tenon_tid,
    pub store: *const tenon_tid,
    pub expert: tenon_tid,
    pub row_live: tenon_tid,
    pub reserved: u32,
    pub pro: *const tenon_chain,
    pub epi: *const tenon_chain,
    pub claim: *const tenon_claim,
    pub normed: tenon_tid,
    pub reserved2: u32,
    pub norm: *const tenon_fop,
}
unsafe impl Sync for tenon_linear_call {}
impl tenon_linear_call {
    pub const NEW: tenon_linear_call = tenon_linear_call { h: head(80), x: 0, y: 0, store: core::ptr::null(), expert: 0, row_live: 0, reserved: 0, pro: core::ptr::null(), epi: core::ptr::null(), claim: core::ptr::null(), normed: 0, reserved2: 0, norm: core::ptr::null() };
}
const _: () = assert!(core::mem::size_of::<tenon_linear_call>() == 80);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_slice {
    pub data: *const c_void,
    pub bytes: u64,
}
unsafe impl Sync for tenon_slice {}
impl tenon_slice {
    pub const NEW: tenon_slice = tenon_slice { data: core::ptr::null(), bytes: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_slice>() == 16);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_rows {
    pub h: tenon_head,
    pub mat: u32,
    pub pass: u32,
    pub row0: u64,
    pub rows: u64,
    pub tensor: *const tenon_slice,
}
unsafe impl Sync for tenon_rows {}
impl tenon_rows {
    pub const NEW: tenon_rows = tenon_rows { h: head(40), mat: 0, pass: 0, row0: 0, rows: 0, tensor: core::ptr::null() };
}
const _: () = assert!(core::mem::size_of::<tenon_rows>() == 40);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_written {
    pub h: tenon_head,
    pub n_tensors: u32,
    pub whole: u32,
    pub tensor: [tenon_stored; 8],
    pub description: *const c_char,
    pub plain_names: *const c_char,
}
unsafe impl Sync for tenon_written {}
impl tenon_written {
    pub const NEW: tenon_written = tenon_written { h: head(416), n_tensors: 0, whole: 0, tensor: [tenon_stored::NEW; 8], description: core::ptr::null(), plain_names: core::ptr::null() };
}
const _: () = assert!(core::mem::size_of::<tenon_written>() == 416);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_encode {
    pub h: tenon_head,
    pub row0: u64,
    pub rows: u64,
    pub data: *const f32,
    pub observed: *const c_void,
    pub out: *const *mut c_void,
    pub factor: *const f32,
}
unsafe impl Sync for tenon_encode {}
impl tenon_encode {
    pub const NEW: tenon_encode = tenon_encode { h: head(56), row0: 0, rows: 0, data: core::ptr::null(), observed: core::ptr::null(), out: core::ptr::null(), factor: core::ptr::null() };
}
const _: () = assert!(core::mem::size_of::<tenon_encode>() == 56);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_column_factors {
    pub h: tenon_head,
    pub data: *const *const f32,
    pub observed: *const *const c_void,
    pub tied: *const u32,
    pub factor: *mut f32,
}
unsafe impl Sync for tenon_column_factors {}
impl tenon_column_factors {
    pub const NEW: tenon_column_factors = tenon_column_factors { h: head(40), data: core::ptr::null(), observed: core::ptr::null(), tied: core::ptr::null(), factor: core::ptr::null_mut() };
}
const _: () = assert!(core::mem::size_of::<tenon_column_factors>() == 40);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_observe_call {
    pub h: tenon_head,
    pub x: tenon_tid,
    pub state: tenon_tid,
    pub expert: tenon_tid,
    pub row_live: tenon_tid,
}
unsafe impl Sync for tenon_observe_call {}
impl tenon_observe_call {
    pub const NEW: tenon_observe_call = tenon_observe_call { h: head(24), x: 0, state: 0, expert: 0, row_live: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_observe_call>() == 24);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_quantization {
    pub h: tenon_head,
    pub row_invariant_max: u32,
    pub reserved: u32,
    pub claim: Option<unsafe extern "C" fn(*mut c_void, *const tenon_linear, *const tenon_bounds, *mut tenon_claim, *mut tenon_reason) -> tenon_status>,
    pub bind: Option<unsafe extern "C" fn(*mut c_void, *const tenon_linear, *const *const tenon_claim, u32, *mut *mut c_void, *mut tenon_reason) -> tenon_status>,
    pub footprint: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut tenon_footprint, *mut tenon_reason) -> tenon_status>,
    pub load: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *const tenon_rows, *const *mut c_void, *mut c_void, *mut c_void, *mut tenon_reason) -> tenon_status>,
    pub unbind: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    pub record: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *const tenon_linear_call, *const tenon_recorder, *mut tenon_reason) -> tenon_status>,
    pub record_rows: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *const tenon_tid, tenon_tid, tenon_tid, *const tenon_recorder, *mut tenon_reason) -> tenon_status>,
    pub describe: Option<unsafe extern "C" fn(*mut c_void, *const tenon_linear, *mut tenon_written, *mut tenon_reason) -> tenon_status>,
    pub encode: Option<unsafe extern "C" fn(*mut c_void, *const tenon_linear, *const tenon_encode, *mut tenon_reason) -> tenon_status>,
    pub observed_bytes: Option<unsafe extern "C" fn(*mut c_void, *const tenon_linear) -> u64>,
    pub observe: Option<unsafe extern "C" fn(*mut c_void, *const tenon_linear, *const tenon_observe_call, *const tenon_recorder, *mut tenon_reason) -> tenon_status>,
    pub column_factors: Option<unsafe extern "C" fn(*mut c_void, *const tenon_linear, *const tenon_column_factors, *mut tenon_reason) -> tenon_status>,
}
unsafe impl Sync for tenon_quantization {}
impl tenon_quantization {
    pub const NEW: tenon_quantization = tenon_quantization { h: head(112), row_invariant_max: 0, reserved: 0, claim: None, bind: None, footprint: None, load: None, unbind: None, record: None, record_rows: None, describe: None, encode: None, observed_bytes: None, observe: None, column_factors: None };
}
const _: () = assert!(core::mem::size_of::<tenon_quantization>() == 112);
pub const TENON_MAX_STORED: u32 = 8;

// sampler.h
pub const TENON_DENSE: u32 = 1;
pub const TENON_SPARSE: u32 = 2;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_candidates {
    pub h: tenon_head,
    pub form: u32,
    pub cap: u32,
    pub vocab: u32,
    pub reserved: u32,
    pub logits: tenon_tid,
    pub id: tenon_tid,
    pub count: tenon_tid,
}
unsafe impl Sync for tenon_candidates {}
impl tenon_candidates {
    pub const NEW: tenon_candidates = tenon_candidates { h: head(36), form: 0, cap: 0, vocab: 0, reserved: 0, logits: 0, id: 0, count: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_candidates>() == 36);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_sampling {
    pub h: tenon_head,
    pub params: tenon_tid,
    pub state: tenon_tid,
    pub next: tenon_tid,
    pub reserved: u32,
}
unsafe impl Sync for tenon_sampling {}
impl tenon_sampling {
    pub const NEW: tenon_sampling = tenon_sampling { h: head(24), params: 0, state: 0, next: 0, reserved: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_sampling>() == 24);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_sampler {
    pub h: tenon_head,
    pub in_forms: u32,
    pub is_selector: u32,
    pub param_bytes: u32,
    pub reserved: u32,
    pub state_bytes: Option<unsafe extern "C" fn(*mut c_void, u32) -> u64>,
    pub encode: Option<unsafe extern "C" fn(*mut c_void, *const tenon_params, *mut c_void, *mut tenon_reason) -> tenon_status>,
    pub record_apply: Option<unsafe extern "C" fn(*mut c_void, *const tenon_sampling, *mut tenon_candidates, *const tenon_recorder, *mut tenon_reason) -> tenon_status>,
    pub record_select: Option<unsafe extern "C" fn(*mut c_void, *const tenon_sampling, *const tenon_candidates, *const tenon_recorder, *mut tenon_reason) -> tenon_status>,
    pub record_accept: Option<unsafe extern "C" fn(*mut c_void, *const tenon_sampling, *const tenon_candidates, *const tenon_recorder, *mut tenon_reason) -> tenon_status>,
}
unsafe impl Sync for tenon_sampler {}
impl tenon_sampler {
    pub const NEW: tenon_sampler = tenon_sampler { h: head(64), in_forms: 0, is_selector: 0, param_bytes: 0, reserved: 0, state_bytes: None, encode: None, record_apply: None, record_select: None, record_accept: None };
}
const _: () = assert!(core::mem::size_of::<tenon_sampler>() == 64);

// scheduler.h
pub const TENON_SEQUENCE_WAITS: u32 = 1;
pub const TENON_SEQUENCE_PROMPT: u32 = 2;
pub const TENON_SEQUENCE_GENERATES: u32 = 3;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_sequence {
    pub h: tenon_head,
    pub id: u64,
    pub age: u64,
    pub phase: u32,
    pub priority: i32,
    pub tokens: u32,
    pub cached: u32,
    pub pending: u32,
    pub held: u32,
    pub client: u64,
    pub client_served: u64,
    pub client_waits: u64,
}
unsafe impl Sync for tenon_sequence {}
impl tenon_sequence {
    pub const NEW: tenon_sequence = tenon_sequence { h: head(72), id: 0, age: 0, phase: 0, priority: 0, tokens: 0, cached: 0, pending: 0, held: 0, client: 0, client_served: 0, client_waits: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_sequence>() == 72);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_workload {
    pub h: tenon_head,
    pub n: u32,
    pub rows: u32,
    pub free_slots: u32,
    pub page_tokens: u32,
    pub free_pages: u32,
    pub reserved: u32,
    pub sequence: *const *const tenon_sequence,
    pub program_rows: *const u32,
    pub n_programs: u32,
    pub reserved_too: u32,
}
unsafe impl Sync for tenon_workload {}
impl tenon_workload {
    pub const NEW: tenon_workload = tenon_workload { h: head(56), n: 0, rows: 0, free_slots: 0, page_tokens: 0, free_pages: 0, reserved: 0, sequence: core::ptr::null(), program_rows: core::ptr::null(), n_programs: 0, reserved_too: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_workload>() == 56);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_share {
    pub sequence: u32,
    pub rows: u32,
}
unsafe impl Sync for tenon_share {}
impl tenon_share {
    pub const NEW: tenon_share = tenon_share { sequence: 0, rows: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_share>() == 8);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_schedule {
    pub h: tenon_head,
    pub n_shares: u32,
    pub n_preempted: u32,
    pub share: *mut tenon_share,
    pub preempted: *mut u32,
}
unsafe impl Sync for tenon_schedule {}
impl tenon_schedule {
    pub const NEW: tenon_schedule = tenon_schedule { h: head(32), n_shares: 0, n_preempted: 0, share: core::ptr::null_mut(), preempted: core::ptr::null_mut() };
}
const _: () = assert!(core::mem::size_of::<tenon_schedule>() == 32);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_scheduler {
    pub h: tenon_head,
    pub sequences: Option<unsafe extern "C" fn(*mut c_void) -> u32>,
    pub next: Option<unsafe extern "C" fn(*mut c_void, *const tenon_workload, *mut tenon_schedule, *mut tenon_reason) -> tenon_status>,
    pub no_space: Option<unsafe extern "C" fn(*mut c_void, *const tenon_workload, u32, *mut u32, *mut tenon_reason) -> tenon_status>,
}
unsafe impl Sync for tenon_scheduler {}
impl tenon_scheduler {
    pub const NEW: tenon_scheduler = tenon_scheduler { h: head(32), sequences: None, next: None, no_space: None };
}
const _: () = assert!(core::mem::size_of::<tenon_scheduler>() == 32);
pub const TENON_NO_SEQUENCE: u32 = 0xffffffff;

// types.h
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_head {
    pub size: u32,
    pub major: u16,
    pub minor: u16,
}
unsafe impl Sync for tenon_head {}
impl tenon_head {
    pub const NEW: tenon_head = tenon_head { size: 0, major: 0, minor: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_head>() == 8);
pub type tenon_status = i32;
pub const TENON_OK: i32 = 0;
pub const TENON_ERROR: i32 = -1;
pub const TENON_REFUSED: i32 = -2;
pub const TENON_NO_SPACE: i32 = -3;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_reason {
    pub text: *mut c_char,
    pub cap: u32,
}
unsafe impl Sync for tenon_reason {}
impl tenon_reason {
    pub const NEW: tenon_reason = tenon_reason { text: core::ptr::null_mut(), cap: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_reason>() == 16);
pub type tenon_id = u64;
pub type tenon_format = u32;
pub const TENON_FORMAT_NONE: u32 = 0;
pub const TENON_F32: u32 = 1;
pub const TENON_F16: u32 = 2;
pub const TENON_BF16: u32 = 3;
pub const TENON_F64: u32 = 4;
pub const TENON_I8: u32 = 5;
pub const TENON_I16: u32 = 6;
pub const TENON_I32: u32 = 7;
pub const TENON_I64: u32 = 8;
pub const TENON_U8: u32 = 9;
pub const TENON_U32: u32 = 10;
pub const TENON_BOOL: u32 = 11;
pub const TENON_F8E4M3: u32 = 12;
pub const TENON_F8E5M2: u32 = 13;
pub const TENON_F4E2M1: u32 = 14;
pub const TENON_E8M0: u32 = 15;
pub const TENON_GGUF_FORMATS: u32 = 64;
pub const TENON_Q4_0: u32 = 66;
pub const TENON_Q4_1: u32 = 67;
pub const TENON_Q5_0: u32 = 70;
pub const TENON_Q5_1: u32 = 71;
pub const TENON_Q8_0: u32 = 72;
pub const TENON_Q2_K: u32 = 74;
pub const TENON_Q3_K: u32 = 75;
pub const TENON_Q4_K: u32 = 76;
pub const TENON_Q5_K: u32 = 77;
pub const TENON_Q6_K: u32 = 78;
pub const TENON_Q8_K: u32 = 79;
pub const TENON_IQ4_NL: u32 = 84;
pub const TENON_IQ4_XS: u32 = 87;
pub const TENON_TQ1_0: u32 = 98;
pub const TENON_TQ2_0: u32 = 99;
pub const TENON_MXFP4: u32 = 103;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_block {
    pub elements: u32,
    pub bytes: u32,
}
unsafe impl Sync for tenon_block {}
impl tenon_block {
    pub const NEW: tenon_block = tenon_block { elements: 0, bytes: 0 };
}
const _: () = assert!(core::mem::size_of::<tenon_block>() == 8);
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tenon_tensor {
    pub h: tenon_head,
    pub format: tenon_format,
    pub rank: u32,
    pub space: u32,
    pub reserved: u32,
    pub dim: [i64; 6],
    pub stride: [i64; 6],
}
unsafe impl Sync for tenon_tensor {}
impl tenon_tensor {
    pub const NEW: tenon_tensor = tenon_tensor { h: head(120), format: 0, rank: 0, space: 0, reserved: 0, dim: [0; 6], stride: [0; 6] };
}
const _: () = assert!(core::mem::size_of::<tenon_tensor>() == 120);
pub const TENON_SPACE_DEVICE: u32 = 0;
pub const TENON_SPACE_HOST: u32 = 1;
