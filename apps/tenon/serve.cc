// `tenon serve` offers a model through OpenAI's interface.
#include <cstdio>
#include <filesystem>

#include "command.h"
#include "fault_report.h"
#include "report.h"
#include "server.h"
#include "spdlog/spdlog.h"
#include "standard_output.h"
#include "text_input.h"
#include "traced_engine.h"

namespace tenon::app {
namespace {

struct Args {
  PipelineArgs pipeline;
  serve::HttpOptions http;
  std::vector<std::string> models, api_keys;
  std::string api_key_file, clients = "key";
  uint32_t max_waiting = 256;
  double max_body_mib = 16, drain_seconds = 30, step_limit = 0;
};

constexpr const char* kServeFooter =
    "Serves /v1/models, /v1/completions, /v1/chat/completions, /v1/embeddings, /tokenize, /detokenize, /health, "
    "/metrics "
    "and a\n"
    "page to chat at /. Standard output gets one line, the server's address, once it accepts. SIGTERM and Ctrl-C let "
    "the requests "
    "that\n"
    "run end, for --drain-seconds at most, and end with 0; a second one ends at once. docs/serving.md says the rest.";

std::vector<std::string> keys_of(const Args& args) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 20U;
  std::vector<std::string> keys = args.api_keys;
  if (args.api_key_file.empty()) return keys;
  const std::string text = text_of_file(args.api_key_file, kMostBytes);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) keys.push_back(std::move(line));
    begin = end + 1;
  }
  if (keys.empty()) throw Error(ErrorCode::kUsage, {args.api_key_file, 0, 0}, "has no key: everybody would be let in");
  return keys;
}

// Returns the names that clients may use for the model: those of --served-model-name, else the last name of the path.
std::vector<std::string> names_of(const Args& args, const Engine& engine) {
  if (!args.models.empty()) return args.models;
  const std::string& path = engine.config().model.path;
  if (path.starts_with("synthetic:")) return {path};
  std::filesystem::path file = std::filesystem::path(path).lexically_normal();
  if (!file.has_filename()) file = file.parent_path();
  return {file.extension() == ".gguf" || file.extension() == ".safetensors" ? file.stem().string()
                                                                            : file.filename().string()};
}

// Returns the command that serves the same; without the keys, which are nobody else's business.
std::string line_of(const Engine& engine, const Args& args) {
  const serve::HttpOptions& http = args.http;
  std::vector<std::string> words = reproducing_words(engine, "serve", args.pipeline);
  const auto add = [&](const char* option, const std::string& value) { words.insert(words.end(), {option, value}); };
  add("--host", http.host);
  add("--port", std::to_string(http.port));
  if (!http.tls_cert.empty()) add("--tls-cert", http.tls_cert);
  if (!http.tls_key.empty()) add("--tls-key", http.tls_key);
  for (const std::string& model : args.models) add("--served-model-name", model);
  if (!args.api_key_file.empty()) add("--api-key-file", args.api_key_file);
  add("--clients", args.clients);
  add("--max-waiting", std::to_string(args.max_waiting));
  add("--max-connections", std::to_string(http.max_connections));
  add("--max-body-mib", fmt::format("{}", args.max_body_mib));
  add("--max-header-bytes", std::to_string(http.max_header_bytes));
  add("--read-seconds", fmt::format("{}", http.read_seconds));
  add("--write-seconds", fmt::format("{}", http.write_seconds));
  add("--request-seconds", fmt::format("{}", http.request_seconds));
  add("--drain-seconds", fmt::format("{}", args.drain_seconds));
  add("--http-threads", std::to_string(http.threads));
  return shell_line(words);
}

int run(const Args& args) {
  const std::stop_token stop = interruption();
  EngineOptions opened_with;
  opened_with.defaults = default_pipeline_file().parent_path() / "serve.toml";
  opened_with.grammars = true;
  TracedEngine traced_engine(args.pipeline, std::move(opened_with));
  Engine& engine = traced_engine.engine();
  serve::ServerOptions options;
  options.http = args.http;
  options.http.max_body_bytes = static_cast<uint64_t>(args.max_body_mib * static_cast<double>(uint64_t{1} << 20U));
  options.api.models = names_of(args, engine);
  options.api.api_keys = keys_of(args);
  options.api.version = TENON_VERSION;
  options.api.users = args.clients == "user";
  options.max_waiting = args.max_waiting;
  options.drain_seconds = args.drain_seconds;
  StepLimit limit(args.step_limit);
  options.beat = [&] { limit.beat(); };
  serve::Server server(engine, std::move(options));
  traced_engine.load();
  if (engine.pipeline().sequences() == 1) {
    spdlog::warn("the scheduler {} answers one request at a time; scheduler.use = \"continuous\" answers several",
                 engine.config().scheduler.name);
  }
  if (!engine.grammar_problem().empty()) spdlog::info("{}", engine.grammar_problem());
  if (!print_now(server.url() + "\n")) return kIo;
  spdlog::info("{}", line_of(engine, args));
  server.run(stop);
  return traced_engine.finish_trace() ? kOk : kIo;
}

}  // namespace

Run add_serve(CLI::App& app) {
  CLI::App* command = app.add_subcommand("serve", "Answer requests over HTTP as OpenAI's services do, many at once.");
  auto args = std::make_shared<Args>();
  serve::HttpOptions& http = args->http;
  args->pipeline.add_to(*command);
  const auto seconds = CLI::Range(0.001, 1e6);
  command->add_option("--host", http.host, "Address to listen on; 0.0.0.0 is all of them")->capture_default_str();
  command->add_option("--port", http.port, "Port to listen on; 0 picks one")->capture_default_str();
  auto* cert = command->add_option("--tls-cert", http.tls_cert, "PEM file of the certificate chain: serve HTTPS");
  auto* key = command->add_option("--tls-key", http.tls_key, "PEM file of the certificate's key")->needs(cert);
  cert->needs(key);
  command->add_option("--served-model-name", args->models, "A name that clients call the model by (repeatable)")
      ->allow_extra_args(false);
  command
      ->add_option("--api-key", args->api_keys,
                   "A key that lets in (repeatable); others can see it in a list of processes")
      ->allow_extra_args(false);
  command->add_option("--api-key-file", args->api_key_file, "A file of such keys, one a line");
  command
      ->add_option("--clients", args->clients,
                   "Who takes turns with scheduler.fair: each API key, or each user (a field of requests) of a key")
      ->capture_default_str()
      ->check(CLI::IsMember({"key", "user"}));
  command->add_option("--max-waiting", args->max_waiting, "Answers that may wait for a slot; further ones get 429")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  command->add_option("--max-connections", http.max_connections, "Connections at once; further ones wait")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  command->add_option("--max-body-mib", args->max_body_mib, "Size of a request's body at most, in MiB")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1024.0));
  command->add_option("--max-header-bytes", http.max_header_bytes, "Size of a request's header at most")
      ->capture_default_str()
      ->check(CLI::Range(256, 1 << 20));
  command->add_option("--read-seconds", http.read_seconds, "Time for a whole request to arrive")
      ->capture_default_str()
      ->check(seconds);
  command->add_option("--write-seconds", http.write_seconds, "Time for a client to take what is written to it")
      ->capture_default_str()
      ->check(seconds);
  command->add_option("--request-seconds", http.request_seconds, "Time for a request to be answered; 0 = any")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  command->add_option("--drain-seconds", args->drain_seconds, "Time for requests to end when the server is told to")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  command->add_option("--http-threads", http.threads, "Threads that serve connections")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  add_step_limit(*command, args->step_limit);
  command->footer(kServeFooter);
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
