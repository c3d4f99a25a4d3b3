// This makes an engine of options: it reads the configuration, finds the components, opens the model and its tokenizer,
// and builds the pipeline and its loop. Nothing is loaded yet (Engine::load). The order matters: libraries that the
// configuration names are in the registry before it is resolved against their schemas, and the tokenizer is there
// before the component that reads grammars. A model without a chat template that can be read is opened all the same:
// chat then fails with the reason.
#include <algorithm>

#include "../cpu/cpu_device.h"
#include "engine_impl.h"

namespace tenon {
namespace {

template <class Kind>
void add_kinds(Registry& registry, const char* kind, std::span<const Kind> kinds) {
  for (const Kind& k : kinds) {
    BuiltinComponent builtin;
    builtin.kind = kind;
    builtin.name = k.name;
    builtin.doc = k.doc;
    if constexpr (requires { k.schema; }) builtin.schema = k.schema;
    builtin.implementation = std::shared_ptr<const void>(std::shared_ptr<const void>(), &k);
    registry.add_builtin(std::move(builtin));
  }
}

template <class Kind>
const Kind& builtin(Registry& registry, const char* kind, const std::string& name) {
  return *static_cast<const Kind*>(registry.load(kind, name).implementation.get());
}

std::unique_ptr<Weights> open_model(const ModelConfig& model, Registry& registry) {
  if (model.weights == "auto") return open_weights(model.path);
  return builtin<WeightsReader>(registry, "weights", model.weights).open(model.path, {});
}

std::unique_ptr<Tokenizer> open_tokenizer(const PipelineConfig& config, Registry& registry, const Weights& weights) {
  if (config.model.tokenizer == "auto") return make_tokenizer(weights);
  return builtin<TokenizerKind>(registry, "tokenizer", config.model.tokenizer).open(weights);
}

// Every token must have a row of the embedding; rows without a token are harmless.
void check_vocabulary(const Tokenizer& tokenizer, const Weights& weights, const ModelInfo& model) {
  const auto tokens = static_cast<uint32_t>(tokenizer.info().vocab_size);
  if (tokens <= model.vocab) return;
  throw Error(ErrorCode::kModel, {weights.files().empty() ? "" : weights.files().front().string()},
              "the tokenizer has " + std::to_string(tokens) + " tokens and the embedding " +
                  std::to_string(model.vocab) + " rows; expected a row for every token");
}

}  // namespace

// Opens the component that reads grammars, or notes why there is none.
void Engine::Impl::open_grammars(const EngineOptions& options) {
  if (!options.grammars) return;
  std::vector<int32_t> ends = tokenizer->info().end_of_generation;
  if (chat) {
    const std::vector<int32_t> turns = chat->stop_tokens(*tokenizer);
    ends.insert(ends.end(), turns.begin(), turns.end());
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  }
  const std::vector<std::string> installed = registry->names("grammar");
  if (!config.grammar) {
    grammar_problem = "structured output is not available: grammar.use is \"none\"";
  } else if (config.grammar->name == kAutoGrammar && installed.empty()) {
    grammar_problem =
        "structured output is not available: no component of the kind grammar is installed (grammar.xgrammar is built "
        "where scripts/fetch_xgrammar.sh has put its sources)";
  } else if (ends.empty()) {
    grammar_problem = "structured output is not available: the model has no token that ends a text";
  } else {
    ComponentConfig component = *config.grammar;
    if (component.name == kAutoGrammar) {
      component.name = installed.front();
      component.params = ParamValues(*registry->load("grammar", component.name).schema);
    }
    grammars.emplace(component, registry, *tokenizer, std::move(ends), options.log);
    grammar_problem.clear();
  }
}

std::unique_ptr<Registry> make_registry(const std::vector<std::filesystem::path>& plugin_dirs) {
  auto registry = std::make_unique<Registry>();
  register_cpu_device(*registry);
  add_kinds(*registry, "weights", builtin_weights_readers());
  add_kinds(*registry, "tokenizer", builtin_tokenizers());
  for (const std::filesystem::path& folder : plugin_dirs) {
    std::error_code error;
    if (std::filesystem::is_directory(folder, error)) continue;
    throw Error(ErrorCode::kPlugin, {folder.string()},
                "is no folder to search for plugins: " + (error ? error.message() : "it is a file"));
  }
  const std::vector<std::filesystem::path> named = plugin_path_variable();
  for (const std::filesystem::path& root : plugin_search_path(plugin_dirs)) {
    registry->add_root(root, std::find(named.begin(), named.end(), root) != named.end());
  }
  return registry;
}

std::unique_ptr<Engine> Engine::open(const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine);
  Impl& impl = *engine->impl_;
  const ConfigDocument document = load_config(options.config, options.set, options.defaults);
  impl.registry = make_registry(options.plugin_dirs);
  for (const ScanNotice& notice : impl.registry->notices()) {
    if (notice.refused && options.log) options.log(kWarning, "refused: " + notice.message);
  }
  for (const PluginConfig& p : document.plugins()) impl.registry->add_library(p.path, p.where);
  RegistrySchemas schemas(*impl.registry);
  impl.config = resolve(document, schemas);
  impl.defaults = resolve(load_config("", {}, options.defaults), schemas, ModelPath::kOptional);
  impl.weights = open_model(impl.config.model, *impl.registry);
  const auto& draft = impl.config.draft_model;
  if (draft && (draft->model.path != impl.config.model.path || draft->model.weights != impl.config.model.weights)) {
    impl.draft_weights = open_model(draft->model, *impl.registry);
  }
  impl.tokenizer = open_tokenizer(impl.config, *impl.registry, *impl.weights);
  try {
    impl.chat.emplace(impl.tokenizer->info());
  } catch (const Error& e) {
    const Diagnostic& problem = e.diagnostics().front();
    impl.chat_problem = problem.where.file.empty() ? problem.message : to_string(problem);
  }
  impl.open_grammars(options);
  impl.scheduler = std::make_unique<Scheduler>(impl.config.scheduler, *impl.registry, options.log);
  PipelineOptions pipeline;
  pipeline.model_dirs = options.model_dirs;
  pipeline.sequences = options.sequences != 0 ? options.sequences : impl.scheduler->sequences();
  pipeline.prefill_rows = impl.config.prefill_rows;
  pipeline.score_rows = options.score_rows;
  pipeline.all_rows = options.all_rows;
  pipeline.recorder = options.recorder ? options.recorder(impl.config) : nullptr;
  pipeline.masks = impl.grammars.has_value();
  impl.load_sessions = options.load_sessions;
  impl.save_sessions = options.save_sessions;
  pipeline.load_sessions = options.load_sessions;
  pipeline.save_sessions = options.save_sessions;
  pipeline.log = options.log;
  if (draft) pipeline.draft_weights = impl.draft_weights ? impl.draft_weights.get() : impl.weights.get();
  impl.pipeline = Pipeline::build(impl.config, *impl.registry, *impl.weights, pipeline);
  check_vocabulary(*impl.tokenizer, *impl.weights, impl.pipeline->model());
  if (pipeline.recorder != nullptr) {
    // Host memory is no HBM.
    const bool walks = (impl.pipeline->device().flags & TENON_DEVICE_WALKS) != 0;
    impl.trace.emplace(*pipeline.recorder, walks ? "read_gbps" : "hbm_read_gbps");
  }
  impl.loop.emplace(*impl.pipeline, *impl.scheduler, impl.tickets,
                    Loop::Options{.trace = impl.trace ? &*impl.trace : nullptr,
                                  .log = options.log,
                                  .rest_steps = impl.config.rest_steps,
                                  .clock = options.clock});
  return engine;
}

}  // namespace tenon
