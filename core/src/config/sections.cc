// These are the tables of keys that pipeline files have. What a key does is written here once: validation, `tenon
// config` and docs/pipeline-toml.md all come from these.
#include "sections.h"

#include <algorithm>
#include <array>
#include <limits>

#include "tenon/core/config.h"
#include "tenon/core/params.h"
#include "tenon/sdk/params.h"

namespace tenon::config {
namespace {

using sdk::boolean;
using sdk::integer;
using sdk::real;
using sdk::text;

constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();

// This is a schema of an array of specs, which has static storage.
template <size_t N>
struct Schema {
  std::array<tenon_param_spec, N> specs;
  std::array<const tenon_param_spec*, N> pointers{};
  tenon_param_schema schema = sdk::abi_struct<tenon_param_schema>();

  explicit Schema(const std::array<tenon_param_spec, N>& s) : specs(s) {
    for (size_t i = 0; i < N; ++i) pointers[i] = &specs[i];
    schema.count = N;
    schema.spec = pointers.data();
  }
  Schema(const Schema&) = delete;
  Schema& operator=(const Schema&) = delete;
};

constexpr tenon_param_spec use(const char* doc) {
  return text({.name = "use", .doc = doc, .flags = TENON_PARAM_REQUIRED});
}

const tenon_param_schema& plugin_keys() {
  static const Schema s(
      sdk::params(text({.name = "path", .doc = "The library, a .so file.", .flags = TENON_PARAM_REQUIRED})));
  return s.schema;
}

const tenon_param_schema& pipeline_keys() {
  static const Schema s(sdk::params(
      boolean({.name = "strict",
               .doc = "Whether a silent downgrade (a part that cannot do what another asks of it) is an error.",
               .value = true}),
      text({.name = "execution",
            .doc = "How a step runs: op by op, as a recorded list, as a captured graph, or as the device does it best.",
            .value = "auto",
            .choices = "auto|per_op|recorded|graph"}),
      boolean({.name = "embeddings",
               .doc = "Whether requests may ask for the embedding of their prompt: steps with such a request have "
                      "programs of their own, which pool the final hidden states.",
               .value = false})));
  return s.schema;
}

const tenon_param_schema& model_keys() {
  static const Schema s(sdk::params(
      text(
          {.name = "path",
           .doc =
               "A Hugging Face folder, a .gguf file, or \"synthetic:<shape>\". The command line may give it instead."}),
      text({.name = "weights", .doc = "The weights reader; auto finds it from the path.", .value = "auto"}),
      text({.name = "tokenizer", .doc = "The tokenizer; auto finds it from the model's files.", .value = "auto"}),
      integer({.name = "context",
               .doc = "Positions the model is run with at most; 0 takes the model's own.",
               .min = 0,
               .max = kMaxCount,
               .unit = "tokens"}),
      integer({.name = "layers",
               .doc =
                   "How many of the model's layers are used, from the first on; 0 takes all of them. A model without "
                   "its last layers is good for drafts only.",
               .min = 0,
               .max = kMaxCount,
               .unit = "layers"})));
  return s.schema;
}

const tenon_param_schema& weights_keys() {
  static const Schema s(sdk::params(
      boolean({.name = "lock",
               .doc = "Whether weights in the host's memory are locked there, so that they are never paged out.",
               .value = false})));
  return s.schema;
}

const tenon_param_schema& device_keys() {
  static const Schema s(sdk::params(use("The device that everything runs on."),
                                    integer({.name = "index", .doc = "Which one of them.", .min = 0, .max = 1023})));
  return s.schema;
}

const tenon_param_schema& quantization_keys() {
  static const Schema s(sdk::params(
      use("The scheme that stores and multiplies weight matrices; auto finds it from what the model's files have.")));
  return s.schema;
}

const tenon_param_schema& kv_cache_keys() {
  static const Schema s(
      sdk::params(use("The cache that holds keys and values."),
                  integer({.name = "capacity",
                           .doc = "Tokens that a sequence may have; 0 takes the model's context, but at most 8192.",
                           .min = 0,
                           .max = kMaxCount,
                           .unit = "tokens"})));
  return s.schema;
}

const tenon_param_schema& attention_keys() {
  static const Schema s(sdk::params(use("How queries meet the cache.")));
  return s.schema;
}

const tenon_param_schema& sampler_keys() {
  static const Schema s(sdk::params(integer(
      {.name = "seed", .doc = "Of the random numbers; the same seed gives the same text.", .value = 1234, .min = 0})));
  return s.schema;
}

const tenon_param_schema& draft_keys() {
  static const Schema s(
      sdk::params(text({.name = "use",
                        .doc = "What proposes tokens ahead, for the model to verify; none = one token a step, or the "
                               "model of [draft.pipeline].",
                        .value = kNoDraft})));
  return s.schema;
}

const tenon_param_schema& grammar_keys() {
  static const Schema s(
      sdk::params(text({.name = "use",
                        .doc = "What reads the grammars of requests; auto = the one that is installed, none = no "
                               "request may state one.",
                        .value = kAutoGrammar})));
  return s.schema;
}

const tenon_param_schema& scheduler_keys() {
  static const Schema s(
      sdk::params(use("Which sequences run in the next step."),
                  integer({.name = "prefill_rows",
                           .doc = "Tokens that a step takes at most; a longer prompt takes more steps.",
                           .value = 512,
                           .min = 1,
                           .max = 65536,
                           .unit = "tokens"}),
                  integer({.name = "rest_steps",
                           .doc = "Where a step of fewer sequences makes more tokens a second, some of those that "
                                  "generate rest in turn, each for so many steps; 0 = nobody rests.",
                           .value = 0,
                           .min = 0,
                           .max = 4096,
                           .unit = "steps"})));
  return s.schema;
}

const tenon_param_schema& trace_keys() {
  static const Schema s(sdk::params(
      text({.name = "path", .doc = "Where the trace is written (.json, or .json.gz); empty = no trace."}),
      integer({.name = "skip_steps", .doc = "Steps to let pass before recording.", .min = 0, .unit = "steps"}),
      integer({.name = "steps", .doc = "Steps to record; 0 = to the end.", .min = 0, .unit = "steps"}),
      integer({.name = "buffer",
               .doc = "Events that a thread can hold until they are written.",
               .value = 1 << 15,
               .min = 1 << 8,
               .max = 1 << 24,
               .unit = "events"}),
      real({.name = "slow_step_ms",
            .doc = "Write only the steps that take at least that long, each with the keep_steps before it; 0 = all.",
            .min = 0,
            .max = 1e9,
            .unit = "ms"}),
      integer({.name = "keep_steps",
               .doc = "Keep the newest so many steps in memory and write them when one is slow, on SIGUSR1, or on "
                      "/trace in a chat; 0 = 8 with slow_step_ms, else every step is written.",
               .min = 0,
               .max = 1 << 16,
               .unit = "steps"}),
      text({.name = "kernels",
            .doc = "What is recorded of a GPU: every kernel (node), each run of a captured graph as one (graph, "
                   "cheap), or nothing.",
            .value = "node",
            .choices = "node|graph|none"})));
  return s.schema;
}

constexpr const char* kPluginDoc =
    "A library from outside the search path. Not needed for a component that is installed: naming it with `use` finds "
    "it.\n"
    "One `[[plugin]]` for each library; what it holds takes precedence over installed components of the same name.";
constexpr const char* kPipelineDoc = "What concerns all parts.";
constexpr const char* kModelDoc = "Which model, and how its files are read.";
constexpr const char* kWeightsDoc = "What becomes of the weights once they are loaded.";
constexpr const char* kDeviceDoc = "Where everything is stored and computed.";
constexpr const char* kQuantizationDoc =
    "How weight matrices are stored and multiplied. `[[quantization.override]]` names another scheme for some of "
    "them:\n"
    "`match` is a glob (`*`, `?`, `[...]`) over module paths such as `lm_head`, `embedding` or "
    "`layers.3.attention.qkv`,\n"
    "and the last override that matches holds. `tenon plan` lists the paths of a model.\n"
    "\n"
    "```toml\n"
    "[quantization]\n"
    "use = \"auto\"\n"
    "\n"
    "[[quantization.override]]\n"
    "match = \"lm_head\"\n"
    "use = \"none\"\n"
    "dtype = \"fp32\"\n"
    "```\n"
    "\n"
    "The routers of mixtures stay as the file has them, whatever `use` names, so that they choose the experts that "
    "the\n"
    "file's numbers choose; an override that matches them, such as `match = \"layers.*.experts.router\"`, names "
    "another "
    "scheme.\n"
    "\n"
    "With `auto` every installed scheme is asked about every matrix. Of those that take it, one that keeps the values "
    "of the\n"
    "file comes before one that would round them anew, then the one that needs the least memory, then the first by "
    "name; if\n"
    "all would round and there are several, it is for you to name one. `tenon plan` shows what was chosen.";
constexpr const char* kKvCacheDoc = "Where keys and values live, and in which format.";
constexpr const char* kAttentionDoc = "The attention kernels.";
constexpr const char* kSamplerDoc =
    "From logits to a token: `chain` lists processors, each working on what the one before left, then `select` draws "
    "the\n"
    "token. A chain whose last component selects by itself (`greedy`) needs no `select`; it is then not used.\n"
    "\n"
    "```toml\n"
    "[sampler]\n"
    "seed = 7\n"
    "chain = [ {use = \"top_k\", k = 200}, {use = \"temperature\", value = 0.8} ]\n"
    "select = \"categorical\"\n"
    "```";
constexpr const char* kDraftDoc =
    "Speculative decoding: a draft proposes tokens, the model verifies them in one step. The text is the one that the "
    "model\n"
    "gives by itself. The draft is a component, or a second model on the same device: `[draft.pipeline]` has the\n"
    "sections `model`, `quantization`, `kv_cache` and `attention`, and what they do not state is as in the pipeline's "
    "own.\n"
    "Its model must have the same vocabulary.\n"
    "\n"
    "```toml\n"
    "[draft.pipeline]\n"
    "tokens = 4\n"
    "\n"
    "[draft.pipeline.model]\n"
    "path = \"models/small.gguf\"\n"
    "\n"
    "[draft.pipeline.quantization]\n"
    "use = \"auto\"\n"
    "```\n"
    "\n"
    "`tokens` is how many tokens the draft model proposes in a round (int: 1 to 15; default 4).";
constexpr const char* kGrammarDoc =
    "Structured output: a request may demand that its text is of a form that a JSON Schema, a regular expression or a "
    "grammar\n"
    "states, and only tokens that lead there are chosen. See `docs/structured-output.md`.";
constexpr const char* kSchedulerDoc = "Which sequences, and how many of their tokens, run in a step.";
constexpr const char* kTraceDoc =
    "A recording of what every component did, for the Perfetto UI. See `docs/profiling.md`.";

}  // namespace

const tenon_param_schema& override_keys() {
  static const Schema s(
      sdk::params(text({.name = "match", .doc = "A glob over module paths.", .flags = TENON_PARAM_REQUIRED}),
                  use("The scheme for the matrices that match, or auto.")));
  return s.schema;
}

const tenon_param_schema& component_keys() {
  static const Schema s(sdk::params(use("The component.")));
  return s.schema;
}

const tenon_param_schema& draft_pipeline_keys() {
  static const Schema s(sdk::params(integer({.name = "tokens",
                                             .doc = "Tokens that the draft model proposes in a round.",
                                             .value = 4,
                                             .min = 1,
                                             .max = 15,
                                             .unit = "tokens"})));
  return s.schema;
}

std::span<const Section> sections() {
  static const std::vector<Section> all = {
      {"plugin", "", kPluginDoc, &plugin_keys(), {}},
      {"pipeline", "", kPipelineDoc, &pipeline_keys(), {}},
      {"model",
       "",
       kModelDoc,
       &model_keys(),
       {{"ignore_unknown", "an array of texts",
         "Keys of config.json, or of a GGUF file's metadata, that are known to change nothing although the model does "
         "not read them: each by its name, which stands for what is below it too. Else such a key is an error."}}},
      {"weights", "", kWeightsDoc, &weights_keys(), {}},
      {"device", "device", kDeviceDoc, &device_keys(), {}},
      {"quantization",
       "quantization",
       kQuantizationDoc,
       &quantization_keys(),
       {{"override", "an array of tables",
         "Schemes for some of the matrices: `match`, `use` and the scheme's parameters."}}},
      {"kv_cache", "kv_cache", kKvCacheDoc, &kv_cache_keys(), {}},
      {"attention", "attention", kAttentionDoc, &attention_keys(), {}},
      {"sampler",
       "",
       kSamplerDoc,
       &sampler_keys(),
       {{"chain", "an array of tables or names", "The processors in order: `use` and the component's parameters."},
        {"select", "a name or a table", "The component that draws the token: its name, or `use` and its parameters."}}},
      {"draft",
       "draft",
       kDraftDoc,
       &draft_keys(),
       {{"pipeline", "a table of sections",
         "A draft model: `tokens`, and `[draft.pipeline.model]`, `.quantization`, `.kv_cache`, `.attention`."}}},
      {"grammar", "grammar", kGrammarDoc, &grammar_keys(), {}},
      {"scheduler", "scheduler", kSchedulerDoc, &scheduler_keys(), {}},
      {"trace", "", kTraceDoc, &trace_keys(), {}},
  };
  return all;
}

const Section* find_section(const std::string& name) {
  for (const Section& s : sections()) {
    if (name == s.name) return &s;
  }
  return nullptr;
}

const Section& section(const std::string& name) {
  return *find_section(name);
}

bool is_own_key(const Section& section, const std::string& key) {
  return find_param(*section.keys, key) < section.keys->count ||
         std::any_of(section.structured.begin(), section.structured.end(),
                     [&](const StructuredKey& s) { return key == s.name; });
}

}  // namespace tenon::config
