// `tenon embed` turns texts into vectors: what a model's final hidden states come to.
#include "command.h"
#include "json_text.h"
#include "standard_output.h"
#include "text_input.h"
#include "traced_engine.h"

namespace tenon::app {
namespace {

struct Args {
  PipelineArgs pipeline;
  std::vector<std::string> texts;
  std::string pooling = "mean";
  bool raw = false;
};

int run(const Args& args) {
  PipelineArgs pipeline = args.pipeline;
  pipeline.set.emplace_back("pipeline.embeddings=true");
  std::vector<Request> requests;
  for (const std::string& text : args.texts.empty() ? std::vector{text_of_input(kPromptBytes)} : args.texts) {
    Request& request = requests.emplace_back();
    request.prompt = text;
    request.embed = args.pooling == "mean" ? Pooling::kMean : Pooling::kLast;
    request.cancel = interruption();
  }
  TracedEngine traced_engine(pipeline);
  traced_engine.load();
  bool written = true;
  for (Result& result : traced_engine.engine().generate(requests)) {
    if (result.error) std::rethrow_exception(result.error);
    if (result.finish == FinishReason::kCancelled) return interrupted_code();
    if (!args.raw) normalize(result.embedding);
    written = written && print_now(json_text(boost::json::value_from(result.embedding)) + "\n");
  }
  return traced_engine.finish_trace() && written ? kOk : kIo;
}

}  // namespace

Run add_embed(CLI::App& app) {
  CLI::App* command = app.add_subcommand("embed", "Turn texts into vectors, each a JSON array on a line of its own.");
  auto args = std::make_shared<Args>();
  args->pipeline.add_to(*command);
  command->add_option("-p,--text", args->texts, "A text (repeatable); without any, all of standard input is one")
      ->allow_extra_args(false);
  command->add_option("--pooling", args->pooling, "The mean of the final hidden states, or the last one")
      ->capture_default_str()
      ->check(CLI::IsMember({"mean", "last"}));
  command->add_flag("--raw", args->raw, "Leave the vectors as long as they are; else they have the length 1");
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
