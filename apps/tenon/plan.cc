#include <algorithm>
#include <cstdio>

#include "command.h"
#include "json_text.h"
#include "report.h"
#include "spdlog/spdlog.h"

namespace tenon::app {
namespace {

struct Args {
  PipelineArgs pipeline;
  bool json = false, toml = false;
};

void print(const Engine& engine) {
  const Pipeline& p = engine.pipeline();
  const ModelInfo& m = p.model();
  std::printf("model         %s, %s: %u layers, %u heads over %u, width %u, ffn %u, vocabulary %u, context %u%s\n",
              engine.config().model.path.c_str(), m.architecture.c_str(), m.layers, m.heads, m.kv_heads, m.width, m.ffn,
              m.vocab, m.context, m.tied ? ", tied head" : "");
  std::printf("device        %s, %u threads\n", p.device().name, p.threads());
  std::printf("sequences     %u of %u tokens\n", p.sequences(), p.capacity());
  std::printf("\nWho does what\n");
  for (const Decision& d : p.decisions()) std::printf("  %s\n", decision_line(d).c_str());
  std::printf("\nPrograms\n");
  for (const Program* program : p.programs()) {
    const bool pools = std::any_of(program->ops().begin(), program->ops().end(),
                                   [](const ProgramOp& op) { return op.path == "pool"; });
    std::printf("  %u rows, %u with logits%s: %zu operations\n", program->bounds().rows, program->bounds().out_rows,
                pools ? ", embeddings" : "", program->ops().size());
  }
  std::printf("\nMemory\n%s", to_string(p.plan()).c_str());
}

boost::json::object as_json(const Engine& engine) {
  const Pipeline& p = engine.pipeline();
  boost::json::array decisions;
  for (const Decision& d : p.decisions()) {
    decisions.push_back(boost::json::object{{"path", d.path}, {"modules", d.count}, {"decision", d.text}});
  }
  return {{"model", engine.config().model.path},
          {"architecture", p.model().architecture},
          {"sequences", p.sequences()},
          {"capacity", p.capacity()},
          {"decisions", decisions},
          {"memory", to_json(p.plan())}};
}

int run(const Args& args) {
  const auto engine = Engine::open({.config = args.pipeline.config,
                                    .set = args.pipeline.overrides(),
                                    .plugin_dirs = args.pipeline.plugin_dirs,
                                    .model_dirs = args.pipeline.model_dirs,
                                    .log = &log_message});
  if (args.toml) {
    std::printf("%s", to_toml(engine->config()).c_str());
  } else if (args.json) {
    std::printf("%s\n", json_text(as_json(*engine)).c_str());
  } else {
    print(*engine);
  }
  const Pipeline& p = engine->pipeline();
  if (const std::string problem = p.plan().problem(p.device().kind); !problem.empty()) spdlog::warn("{}", problem);
  return kOk;
}

}  // namespace

Run add_plan(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("plan", "Show who does what, with reasons, and what memory it takes. Loads no weights.");
  auto args = std::make_shared<Args>();
  args->pipeline.add_to(*command);
  auto* json = command->add_flag("--json", args->json, "As JSON");
  command->add_flag("--toml", args->toml, "The whole pipeline as a configuration file, defaults included")
      ->excludes(json);
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
