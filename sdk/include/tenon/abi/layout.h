/* The layout of each kind's interface, for a plugin's note: a hash over every field of every struct.  C11 and C++20.
 * Written by scripts/abi_layout.py; after a change of a header in this folder: python3 scripts/abi_layout.py */
#ifndef TENON_ABI_LAYOUT_H
#define TENON_ABI_LAYOUT_H

#define TENON_LAYOUT_ATTENTION    "ac5d463a8c59d7c7"
#define TENON_LAYOUT_DEVICE       "0c2b211e0d442ded"
#define TENON_LAYOUT_DRAFT        "177df5f2318187e0"
#define TENON_LAYOUT_GRAMMAR      "7d4c5de3086cdb8e"
#define TENON_LAYOUT_KV_CACHE     "25f663443518be55"
#define TENON_LAYOUT_OP           "58e9379def2b0ce6"
#define TENON_LAYOUT_QUANTIZATION "92f564ffe5218607"
#define TENON_LAYOUT_SAMPLER      "92f57e073110491f"
#define TENON_LAYOUT_SCHEDULER    "7e4ebad5e21a3124"

/* TENON_LAYOUTS(X) makes an X("kind", hash) of each. */
#define TENON_LAYOUTS(X) \
  X("attention", TENON_LAYOUT_ATTENTION) \
  X("device", TENON_LAYOUT_DEVICE) \
  X("draft", TENON_LAYOUT_DRAFT) \
  X("grammar", TENON_LAYOUT_GRAMMAR) \
  X("kv_cache", TENON_LAYOUT_KV_CACHE) \
  X("op", TENON_LAYOUT_OP) \
  X("quantization", TENON_LAYOUT_QUANTIZATION) \
  X("sampler", TENON_LAYOUT_SAMPLER) \
  X("scheduler", TENON_LAYOUT_SCHEDULER)

/* What the hashes were made of, so that a check can name what has changed.
 * attention: tenon_attn f60c6149f72d
 * attention: tenon_attn_call 4f26dd6a298a
 * attention: tenon_attention fbf6f247191f
 * device: enum TENON_ISA_AVX2 b6abf88159bd
 * device: enum TENON_DEVICE_WALKS 5b5f28376a86
 * device: tenon_generated 32f52c5dc1fd
 * device: tenon_draft_pass 1eedf9a6efc4
 * device: tenon_device 1cdbbf9a2c50
 * draft: enum TENON_DRAFT_TREES ee13387ba970
 * draft: tenon_draft c77f21c33f7b
 * grammar: enum TENON_F_MASK 2167f258f9e8
 * grammar: tenon_vocabulary a949921b91b0
 * grammar: enum TENON_GRAMMAR_JSON_SCHEMA 445d48d5989e
 * grammar: enum TENON_GRAMMAR_CLOSED 12565435a878
 * grammar: tenon_grammar_source 844beb62dc0d
 * grammar: tenon_grammar f73dfb57c299
 * kv_cache: tenon_kv_plane be010cfaad3b
 * kv_cache: tenon_kv_format ce8cbe1ec197
 * kv_cache: enum TENON_POS_LINEAR 7ff7f608c5b4
 * kv_cache: enum TENON_KV_HEADS_APART 0c370a12f400
 * kv_cache: tenon_kv_view 3c879b4b1046
 * kv_cache: tenon_kv_geometry 3616e5d85126
 * kv_cache: tenon_kv_stores d9fe9628973e
 * kv_cache: tenon_kv_cache 7ab1ceca7bdb
 * op: enum TENON_ARG_VECTOR a18152a3981f
 * op: tenon_op_arg dd13049f8af8
 * op: enum TENON_SMALL_OP_IN_PLACE 1cf166daefec
 * op: tenon_small_op f9fc6804b3fe
 * params: enum TENON_PARAM_BOOL 3a0dcc897ba7
 * params: enum TENON_PARAM_REQUIRED 8c1b17047c3c
 * params: tenon_param_spec 40f118574143
 * params: tenon_param_schema baa39f9d6084
 * params: tenon_param_value 8138d5476b20
 * params: tenon_params a2905e8142db
 * plugin: tenon_note 22dd24b27cbc
 * plugin: tenon_note_section 45eaa1021188
 * plugin: tenon_host a254e9211179
 * plugin: tenon_env 762e3d9dcc10
 * plugin: enum TENON_OWN_FORMULA 8698a9462081
 * plugin: tenon_component e28c9cf87661
 * plugin: tenon_plugin 9062591300d3
 * plugin: macro TENON_ABI_MAJOR 607fab7c6c4c
 * plugin: macro TENON_ABI_MINOR 5e98558c16bd
 * plugin: macro TENON_NOTE_OWNER 9bbfc9bd60fa
 * plugin: macro TENON_NOTE_TYPE 2667732161d9
 * program: typedef uint32_t tenon_tid 2fdfe0cd3022
 * program: tenon_bounds e52b477c6f07
 * program: enum TENON_STEP_LIVE 31ee9e50b1d1
 * program: enum TENON_READ cdecec659a0f
 * program: tenon_operand 158655afc3a8
 * program: tenon_launch 748988d6086f
 * program: enum TENON_LAUNCH_OVERLAP 12fcff95e608
 * program: tenon_part d87c83bd35cb
 * program: tenon_cost f244b9c97528
 * program: enum TENON_BLOCKS_SMALL 921a210c93a8
 * program: tenon_op 5b74a32aad02
 * program: enum TENON_OP_FOREIGN 693c85bf8f9b
 * program: tenon_recorder 7f46254be4f3
 * program: tenon_fop cf3a4898952b
 * program: enum TENON_F_RMSNORM b0d51a012b68
 * program: tenon_chain 03160ba69fa8
 * program: tenon_claim 1ea24b89cb64
 * program: tenon_footprint a711b83653c0
 * program: enum TENON_FOOTPRINT_IN_PLACE 7e5d8504eaa5
 * program: macro TENON_MAX_PHASES 85ab7fc6286a
 * program: macro TENON_MAX_OPERANDS 6800fab9ab73
 * program: macro TENON_MAX_STORES b111d0fcb141
 * quantization: tenon_stored d7ec86699a50
 * quantization: tenon_matrix 7a67de2315e4
 * quantization: tenon_linear b3b292dd6af1
 * quantization: tenon_linear_call a93562f6a12f
 * quantization: tenon_slice 22fb5ef80a4d
 * quantization: tenon_rows f293bd72e784
 * quantization: tenon_written 390654d59f20
 * quantization: tenon_encode 419ad7f3a360
 * quantization: tenon_column_factors 63d71dc6ecc3
 * quantization: tenon_observe_call 7e4bdd32d7c8
 * quantization: tenon_quantization df20a34890c7
 * quantization: macro TENON_MAX_STORED 70b62cc65e97
 * sampler: enum TENON_DENSE 932eec1bf7d4
 * sampler: tenon_candidates d77f8b971776
 * sampler: tenon_sampling 7b19eeef2863
 * sampler: tenon_sampler 191b9152e19b
 * scheduler: enum TENON_SEQUENCE_WAITS 96c397a3de8b
 * scheduler: tenon_sequence 7d05f38b450e
 * scheduler: tenon_workload 9cc5603ee174
 * scheduler: tenon_share 094608f50c88
 * scheduler: tenon_schedule 3779e6566c60
 * scheduler: tenon_scheduler e4d8a47ae370
 * scheduler: macro TENON_NO_SEQUENCE 265b4a473dbe
 * types: tenon_head 63b41462238e
 * types: typedef int32_t tenon_status 22467031af8e
 * types: enum TENON_OK 9752495ed494
 * types: tenon_reason 8bea9972e660
 * types: typedef uint64_t tenon_id 4846c1593881
 * types: typedef uint32_t tenon_format a17504fff8d4
 * types: enum TENON_FORMAT_NONE 629eca10aa76
 * types: tenon_block a5705dc447a0
 * types: tenon_tensor 7d0b59304683
 * types: enum TENON_SPACE_DEVICE 97fa9cf8670a
 */
#endif
