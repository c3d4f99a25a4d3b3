// Keys and values are in pages of one pool; sequences that begin alike share them. See Kwon et al., "Efficient Memory
// Management for Large Language Model Serving with PagedAttention", arXiv:2309.06180.
#include "paged_cache.h"

namespace tenon::paged {

class Paged : public sdk::KvCache<Paged>, public PagedCache {
 public:
  static constexpr const char* kName = "paged";
  static constexpr const char* kDoc = "Pages that sequences take as they grow, and share where they begin alike";
  static constexpr auto kParams = sdk::params(
      sdk::integer({.name = "page_tokens",
                    .doc = "Tokens of a page",
                    .value = 16,
                    .min = 16,
                    .max = 256,
                    .choices = "16|32|64|128|256",
                    .unit = "tokens"}),
      sdk::integer({.name = "pool",
                    .doc = "Tokens that all sequences hold together; 0 = the capacity for each of them",
                    .value = 0,
                    .min = 0,
                    .max = int64_t{1} << 40,
                    .unit = "tokens"}),
      sdk::real({.name = "pool_memory",
                 .doc = "The pool's size as a share of the device's memory, instead of `pool`; 0 = not so",
                 .value = 0,
                 .min = 0,
                 .max = 1}),
      sdk::boolean({.name = "reuse",
                    .doc = "Whether a new sequence takes over the pages of one that began alike, running or ended",
                    .value = true}),
      sdk::text(
          {.name = "format",
           .doc = "How an element is stored; int8, fp8 and int4 have a scale in fp16 for each token and KV head, and "
                  "int4 is rotated",
           .value = "fp16",
           .choices = "fp16|bf16|fp32|int8|fp8|int4"}),
      slot_cache::kTail);

  Paged(const sdk::Params& params, const sdk::Env& env)
      : PagedCache(format(params.text("format")),
                   {.page_tokens = static_cast<uint32_t>(params.integer("page_tokens")),
                    .pool_tokens = static_cast<uint64_t>(params.integer("pool")),
                    .pool_memory = params.real("pool_memory"),
                    .windows = params.boolean("reuse") ? 2U : 1U,
                    .tail = tail(params),
                    .hadamard = params.text("format") == "int4"},
                   params.boolean("reuse"), env) {}

 private:
  static uint32_t tail(const sdk::Params& params) {
    const uint32_t tokens = slot_cache::tail_of(params);
    if (tokens == 0 || sdk::is_scaled_codec(format(params.text("format")).k.codec)) return tokens;
    throw sdk::Refused("kv_cache.tail = " + std::to_string(tokens) + " with kv_cache.format = \"" +
                       params.text("format") +
                       "\": a tail is what is read in fp16 instead of codes, which int8, fp8 and int4 are");
  }
  static tenon_kv_format format(const std::string& name) {
    if (name == "int4") return sdk::kv_format(TENON_U8, TENON_F16);
    if (name == "fp8") return sdk::kv_format(TENON_F8E4M3, TENON_F16);
    if (name == "int8") return sdk::kv_format(TENON_I8, TENON_F16);
    return sdk::kv_format(name == "fp32" ? TENON_F32 : name == "fp16" ? TENON_F16 : TENON_BF16);
  }
};

}  // namespace tenon::paged

TENON_PLUGIN(tenon::paged::Paged);
