// Notes which keys of the metadata a model has asked for. What is left then is compared with patterns of keys that
// change no number: a key that is in neither may mean that the model computes something else than is computed here.
#include "metadata_ledger.h"

#include <algorithm>

#include "layout.h"

namespace tenon::weights {
namespace {

// The GGUF specification has these for people and for files, and known converters add the rest.
constexpr std::string_view kGgufKeys[] = {
    "general.name*",
    "general.author*",
    "general.version",
    "general.organization*",
    "general.finetune*",
    "general.basename",
    "general.description",
    "general.quantized*",
    "general.size_label",
    "general.license*",
    "general.url*",
    "general.doi*",
    "general.uuid*",
    "general.repo_url*",
    "general.source.*",
    "general.base_*",
    "general.tags*",
    "general.languages*",
    "general.datasets*",
    "general.dataset.*",
    "general.file_type",
    "general.alignment",
    "general.parameter_count",
    "general.sampling.*",
    "split.*",
    "quantize.imatrix.*",
    "mradermacher.*",
};

// A tokenizer reads some of these; the others name tokens that a caller has a use for.
constexpr std::string_view kGgufTokenizerKeys[] = {
    "tokenizer.chat_template",
    "tokenizer.chat_template.*",
    "tokenizer.chat_templates",
    "tokenizer.huggingface.json",
    "tokenizer.rwkv.world",
    "tokenizer.ggml.model",
    "tokenizer.ggml.pre",
    "tokenizer.ggml.tokens",
    "tokenizer.ggml.token_type",
    "tokenizer.ggml.token_type_count",
    "tokenizer.ggml.scores",
    "tokenizer.ggml.merges",
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
    "tokenizer.ggml.unknown_token_id",
    "tokenizer.ggml.seperator_token_id",
    "tokenizer.ggml.separator_token_id",
    "tokenizer.ggml.padding_token_id",
    "tokenizer.ggml.mask_token_id",
    "tokenizer.ggml.cls_token_id",
    "tokenizer.ggml.fim_*_token_id",
    "tokenizer.ggml.prefix_token_id",
    "tokenizer.ggml.suffix_token_id",
    "tokenizer.ggml.middle_token_id",
    "tokenizer.ggml.add_bos_token",
    "tokenizer.ggml.add_eos_token",
    "tokenizer.ggml.add_sep_token",
    "tokenizer.ggml.add_space_prefix",
    "tokenizer.ggml.remove_extra_whitespaces",
    "tokenizer.ggml.precompiled_charsmap",
};

// The PreTrainedConfig of transformers has these beside a model's own fields, or tools around it add them.
// Every scheme is told of quantization_config.
constexpr std::string_view kConfigKeys[] = {
    "__metadata__*",
    "generation_config.*",
    "quantization_config*",
    "_attn_implementation*",
    "_commit_hash",
    "_name_or_path",
    "attn_implementation",
    "auto_class",
    "bad_words_ids*",
    "begin_suppress_tokens*",
    "bos_token_id",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id*",
    "exponential_decay_length_penalty*",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label*",
    "label2id*",
    "length_penalty",
    "max_length",
    "min_length",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict*",
    "sep_token_id",
    "suppress_tokens*",
    "task_specific_params*",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers\\.js_config*",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
};

}  // namespace

bool matches(std::string_view name, std::string_view pattern) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name == pattern;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (size_t skipped = star; skipped <= name.size(); ++skipped) {
    if (matches(name.substr(skipped), rest)) return true;
  }
  return false;
}

bool matches_any(std::string_view name, std::span<const std::string_view> patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](std::string_view p) { return matches(name, p); });
}

bool matches_any(std::string_view name, std::span<const std::string> patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) { return matches(name, p); });
}

std::span<const std::string_view> harmless_keys(std::string_view convention) {
  if (convention == "gguf") return kGgufKeys;
  return kConfigKeys;
}

namespace {

bool stands_for(const std::string& name, const std::string& key) {
  return key == name || (key.starts_with(name) && key[name.size()] == '.');
}

}  // namespace

bool MetadataLedger::is_unknown(const std::string& key, std::span<const std::string> harmless) const {
  return key != kNullKeys && !asked_.contains(key) && !matches_any(key, harmless) &&
         !matches_any(key, harmless_keys(convention())) &&
         !(convention() == "gguf" && matches_any(key, kGgufTokenizerKeys));
}

std::vector<Diagnostic> MetadataLedger::needlessly_ignored(std::span<const std::string> harmless,
                                                           std::span<const std::string> ignored) const {
  std::vector<Diagnostic> needless;
  const std::vector<std::string> keys = source_.metadata_keys();
  for (const std::string& name : ignored) {
    const auto is_there = [&](const std::string& key) { return stands_for(name, key); };
    const auto is_ignored = [&](const std::string& key) { return stands_for(name, key) && is_unknown(key, harmless); };
    if (std::any_of(keys.begin(), keys.end(), is_ignored)) continue;
    Diagnostic& d = needless.emplace_back();
    d.where.file = description_file(source_);
    d.message = "model.ignore_unknown names " + in_quotes(name) + ", " +
                (std::any_of(keys.begin(), keys.end(), is_there) ? "which is known, and is not ignored"
                                                                 : "and there is no such key");
  }
  return needless;
}

std::vector<Diagnostic> MetadataLedger::unknown_keys(std::span<const std::string> harmless,
                                                     std::span<const std::string> ignored) const {
  std::vector<std::string> absent;
  std::vector<Diagnostic> unknown;
  for (const std::string& key : asked_) {
    if (source_.metadata(key) == nullptr) absent.push_back(key);
  }
  for (const std::string& key : source_.metadata_keys()) {
    if (!is_unknown(key, harmless)) continue;
    if (std::any_of(ignored.begin(), ignored.end(), [&](const auto& name) { return stands_for(name, key); })) continue;
    const std::string nearest = nearest_name(key, absent);
    Diagnostic& d = unknown.emplace_back();
    d.where.file = description_file(source_);
    d.message =
        "key " + in_quotes(key) + ", found " + describe(*source_.metadata(key)) +
        ": the model does not read it, so it may change what is computed; " +
        (nearest.empty() ? "expected no such key; where it is known to change nothing, model.ignore_unknown = [" +
                               in_quotes(key) + "] lets it be there"
                         : "did you mean " + in_quotes(nearest) + "?");
  }
  return unknown;
}

}  // namespace tenon::weights
