// `tenon inspect` shows what is installed, a component's parameters, a model's file, a pipeline's step program. It
// loads no weights; a program is recorded and planned, and never runs.
#include <cstdio>

#include "command.h"
#include "conformance/device.h"
#include "inspect_file.h"
#include "json_text.h"
#include "program_report.h"
#include "report.h"
#include "tenon/abi/op.h"
#include "tenon/abi/types.h"
#include "tenon/core/module.h"
#include "tenon/core/params.h"

namespace tenon::app {
namespace {

struct Args {
  std::string component, model, program, file, schema_hash;
  PipelineArgs pipeline;
  uint32_t rows = 0, context = 0;
  bool json = false;
};

std::string origin(const ComponentInfo& c) {
  return c.library.empty() ? "built in" : c.library.string();
}

void list_components(const Registry& registry, bool json) {
  boost::json::array components, notices;
  std::string kind;
  for (const ComponentInfo& c : registry.components()) {
    if (!json && c.kind != kind) std::printf("%s\n", c.kind.c_str());
    kind = c.kind;
    if (!json) std::printf("  %-22s %-5s %s\n", c.name.c_str(), c.device.c_str(), origin(c).c_str());
    components.push_back(
        boost::json::object{{"kind", c.kind}, {"name", c.name}, {"device", c.device}, {"origin", origin(c)}});
  }
  for (const ScanNotice& n : registry.notices()) {
    if (!json) std::printf("%s %s: %s\n", n.refused ? "refused" : "note", n.library.c_str(), n.message.c_str());
    notices.push_back(
        boost::json::object{{"library", n.library.string()}, {"refused", n.refused}, {"message", n.message}});
  }
  if (json) {
    const boost::json::object all = {{"components", components}, {"notices", notices}};
    std::printf("%s\n", json_text(all).c_str());
  }
}

void list_families(const std::vector<std::filesystem::path>& model_dirs) {
  std::printf("model\n");
  for (const ModelFamily& f : model_families(model_dirs)) std::printf("  %-28s %s\n", f.name.c_str(), f.file.c_str());
}

void show_family(const std::string& name, const std::vector<std::filesystem::path>& model_dirs) {
  std::vector<std::string> known;
  for (const ModelFamily& f : model_families(model_dirs)) {
    if (f.name == name) return static_cast<void>(std::printf("%s", family_text(f.file).c_str()));
    known.push_back(f.name);
  }
  std::string all;
  for (const std::string& k : known) all += (all.empty() ? "" : ", ") + k;
  const std::string nearest = nearest_name(name, known);
  throw Error(ErrorCode::kUsage, "no model family is called \"" + name + "\"; " +
                                     (nearest.empty() ? "there are " + all : "did you mean \"" + nearest + "\"?"));
}

const char* arg_kind(uint32_t kind) {
  switch (kind) {
    case TENON_ARG_VECTOR:
      return "vector";
    case TENON_ARG_TABLE:
      return "table";
    case TENON_ARG_ROWS:
      return "rows";
    case TENON_ARG_NUMBER:
      return "number";
    case TENON_ARG_INTEGER:
      return "integer";
    default:
      return "unknown";
  }
}

// A model that names a small op states these arguments. Only an instance knows them, so the op's device has to be
// there.
boost::json::array op_arguments(Registry& registry, const LoadedComponent& c) {
  const conformance::Device device(registry, c.info.device);
  const conformance::Component op(c, device);
  const auto& table = op.table<tenon_small_op>();
  boost::json::array all;
  for (uint32_t i = 0; i < table.n_args; ++i) {
    const tenon_op_arg& arg = table.arg[i];
    all.push_back(boost::json::object{
        {"name", arg.name}, {"kind", arg_kind(arg.kind)}, {"doc", arg.doc == nullptr ? "" : arg.doc}});
  }
  return all;
}

void print_arguments(const boost::json::array& arguments) {
  std::printf(arguments.empty() ? "no arguments\n" : "arguments\n");
  for (const boost::json::value& arg : arguments) {
    std::printf("  %-14s %-8s %s\n", arg.at("name").as_string().c_str(), arg.at("kind").as_string().c_str(),
                arg.at("doc").as_string().c_str());
  }
}

void show_component(Registry& registry, const std::string& id, bool json) {
  const size_t dot = id.find('.');
  if (dot == std::string::npos) {
    throw Error(ErrorCode::kUsage, "\"" + id + "\" names no component; write kind.name, as in quantization.int4wo");
  }
  const LoadedComponent& c = registry.load(id.substr(0, dot), id.substr(dot + 1));
  boost::json::array parameters;
  if (!json) {
    std::printf("%s: %s\n%s", id.c_str(), c.doc.c_str(), c.info.library.empty() ? "built in\n" : "");
    if (!c.info.library.empty()) {
      std::printf("%s\nby %s, version %s, license %s, made with %s\n", c.info.library.c_str(), c.vendor.c_str(),
                  c.version.c_str(), c.license.c_str(), c.compiler.c_str());
    }
    std::printf(c.schema->count == 0 ? "no parameters\n" : "parameters\n");
  }
  for (size_t i = 0; i < c.schema->count; ++i) {
    const tenon_param_spec spec = spec_at(*c.schema, i);
    if (!json) std::printf("  %-14s %s\n  %14s %s\n", spec.name, describe(spec).c_str(), "", spec.doc);
    parameters.push_back(boost::json::object{{"name", spec.name},
                                             {"type", type_name(spec)},
                                             {"default", default_text(spec)},
                                             {"range", range_text(spec)},
                                             {"doc", spec.doc}});
  }
  const bool is_op = c.info.kind == "op";
  const boost::json::array arguments = is_op ? op_arguments(registry, c) : boost::json::array();
  if (!json) {
    if (is_op) print_arguments(arguments);
    return;
  }
  boost::json::object out = {
      {"id", id}, {"doc", c.doc}, {"origin", origin(c.info)}, {"version", c.version}, {"parameters", parameters}};
  if (is_op) out["arguments"] = arguments;
  std::printf("%s\n", json_text(out).c_str());
}

void show_model(const std::string& path) {
  const std::unique_ptr<Weights> weights = open_weights(path);
  uint64_t bytes = 0;
  for (const WeightTensor& t : weights->tensors()) {
    std::string shape;
    for (const int64_t d : t.shape) shape += (shape.empty() ? "" : " x ") + std::to_string(d);
    std::printf("%-48s %-6s %s\n", t.name.c_str(), tenon_format_name(t.format), shape.c_str());
    bytes += t.bytes;
  }
  std::printf("%zu tensors, %s, architecture %s, convention %s\n", weights->tensors().size(),
              format_bytes(bytes).c_str(), architecture_of(*weights).c_str(),
              std::string(weights->convention()).c_str());
}

int run(const Args& args) {
  if (!args.file.empty()) return inspect_file(args.file, args.json);
  if (!args.schema_hash.empty()) return print_schema_hash(args.schema_hash);
  if (!args.model.empty()) {
    show_model(args.model);
  } else if (!args.program.empty()) {
    const auto engine = Engine::open({.config = args.program,
                                      .set = args.pipeline.overrides(),
                                      .plugin_dirs = args.pipeline.plugin_dirs,
                                      .model_dirs = args.pipeline.model_dirs,
                                      .log = &log_message});
    print_program(engine->pipeline(), {args.rows, args.context}, args.json);
  } else {
    constexpr std::string_view kFamily = "model.";
    const std::vector<std::filesystem::path>& model_dirs = args.pipeline.model_dirs;
    if (args.component.starts_with(kFamily)) {
      show_family(args.component.substr(kFamily.size()), model_dirs);
      return kOk;
    }
    const std::unique_ptr<Registry> registry = make_registry(args.pipeline.plugin_dirs);
    if (args.component.empty()) {
      if (!args.json) list_families(model_dirs);
      list_components(*registry, args.json);
    } else {
      show_component(*registry, args.component, args.json);
    }
  }
  return kOk;
}

}  // namespace

Run add_inspect(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "inspect", "Show what is installed, a component (kind.name), a library, a model or a step program.");
  auto args = std::make_shared<Args>();
  args->pipeline.add_to(*command, "");
  auto* component = command->add_option("COMPONENT", args->component,
                                        "kind.name, as in quantization.int4wo; model.NAME for a family");
  auto* model = command->add_option("--model", args->model, "List a model's tensors")->excludes(component);
  auto* program = command->add_option("--program", args->program, "The step program of a pipeline file or model")
                      ->excludes(component)
                      ->excludes(model);
  command->add_option("--file", args->file, "A plugin library, opened in a process of its own")
      ->excludes(component)
      ->excludes(model)
      ->excludes(program);
  command
      ->add_option("--schema-hash", args->schema_hash,
                   "The hash of a plugin library's parameters, which its note may state")
      ->excludes(component)
      ->excludes(model)
      ->excludes(program);
  command->add_option("--rows", args->rows, "Rows of the step; chooses the program")->needs(program);
  command->add_option("--context", args->context, "Tokens that each row attends to, for its costs")->needs(program);
  command->add_flag("--json", args->json, "As JSON");
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
