// `tenon model check` says what is wrong with a family's file, and where a model that it claims differs from
// transformers.
//
// The model is opened as the file says, so a key or a tensor that the family does not read, a shape that is not right
// and an op that is not installed are named first. Then one text goes through both: after every layer the rows are
// compared, and at the end the logits, in f32 on the CPU. Python is a process of its own that leaves its rows in files.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>

#include "command.h"
#include "tenon/core/module.h"
#include "tenon/core/weights.h"

namespace tenon::app {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kTokens = 24;
constexpr double kTolerance = 1e-4;  // so much of the largest value may differ; rounding in f32 alone stays far below

// It takes the model's folder, the folder for results and the tokens. It writes a file for each layer, and logits.
constexpr const char* kScript = R"(
import sys
import torch
import transformers
transformers.utils.logging.set_verbosity_error()
folder, out, tokens = sys.argv[1], sys.argv[2], [int(t) for t in sys.argv[3].split(",")]
model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
def keep(name):
    def hook(_module, _inputs, result):
        rows = (result[0] if isinstance(result, tuple) else result).reshape(len(tokens), -1)
        with open(out + "/" + name + ".f32", "wb") as file:
            file.write(rows.float().contiguous().numpy().tobytes())
    return hook
for i, layer in enumerate(model.model.layers):
    layer.register_forward_hook(keep("layers." + str(i)))
with torch.no_grad():
    keep("logits")(None, None, model(torch.tensor([tokens]), use_cache=False).logits)
print(transformers.__version__)
)";

struct Args {
  std::string subject, model, python = "python3";
  std::vector<fs::path> plugin_dirs, model_dirs;
};

using Rows = std::map<std::string, std::vector<float>>;  // "layers.3", "logits"; row by row

// This is a folder that is gone with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "tenon-model-check-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw Error(ErrorCode::kIo, {name}, "cannot make a folder of this name");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<int32_t> tokens_for(uint32_t vocab) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < kTokens; ++i) tokens.push_back((i * 37 + 5) % static_cast<int32_t>(vocab));
  return tokens;
}

// Returns the last module of a layer that leaves its rows.
std::string last_module(Pipeline& pipeline, uint32_t layer) {
  for (const char* module : {"mlp.down", "experts.down", "attention.o"}) {
    const std::string path = "layers." + std::to_string(layer) + "." + module;
    try {
      pipeline.look_at({path}, [](const Pipeline::ModuleResult&) {});
      return path;
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kUsage) throw;
    }
  }
  return "";
}

Rows rows_of(Engine& engine, const std::vector<int32_t>& tokens) {
  Rows rows;
  Pipeline& pipeline = engine.pipeline();
  std::map<std::string, std::string, std::less<>> layer_of;  // keyed by the module's path
  std::vector<std::string> paths;
  for (uint32_t layer = 0; layer < pipeline.model().layers; ++layer) {
    const std::string path = last_module(pipeline, layer);
    if (path.empty()) continue;
    paths.push_back(path);
    layer_of[path] = "layers." + std::to_string(layer);
  }
  pipeline.look_at(paths, [&](const Pipeline::ModuleResult& result) {
    std::vector<float>& to = rows[layer_of.find(result.path)->second];
    to.insert(to.end(), result.values.begin(), result.values.end());
  });
  std::vector<float>& logits = rows["logits"];
  engine.score(tokens, 0,
               [&](uint32_t, std::span<const float> row) { logits.insert(logits.end(), row.begin(), row.end()); });
  return rows;
}

// Returns the version of transformers that left its rows in the folder; "" if it could not, with the reason.
std::string run_transformers(const Args& args, const std::vector<int32_t>& tokens, const fs::path& folder,
                             std::string& reason) {
  std::string list;
  for (const int32_t t : tokens) list += (list.empty() ? "" : ",") + std::to_string(t);
  const std::string out = (folder / "out").string(), err = (folder / "err").string();
  const std::string line = shell_line({args.python, "-c", kScript, args.model, folder.string(), list}) + " >" +
                           shell_line({out}) + " 2>" + shell_line({err});
  const bool worked = std::system(line.c_str()) == 0;
  std::string text = text_of(worked ? out : err);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  text = text.substr(text.rfind('\n') + 1);  // npos + 1 is 0
  if (!worked) reason = text.empty() ? args.python + " failed" : text;
  return worked ? text : "";
}

// Prints the differences; returns the first thing that differs, or "".
std::string first_difference(const Rows& rows, const fs::path& folder, uint32_t layers) {
  std::string first;
  std::vector<std::string> names;
  for (uint32_t layer = 0; layer < layers; ++layer) names.push_back("layers." + std::to_string(layer));
  names.emplace_back("logits");
  for (const std::string& name : names) {
    const auto found = rows.find(name);
    if (found == rows.end()) continue;
    const std::string bytes = text_of(folder / (name + ".f32"));
    const std::vector<float>& ours = found->second;
    std::vector<float> theirs(bytes.size() / sizeof(float));
    std::copy_n(bytes.data(), theirs.size() * sizeof(float), reinterpret_cast<char*>(theirs.data()));
    double worst = 0, peak = 1e-30;
    for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
      const double difference = std::abs(static_cast<double>(ours[i]) - static_cast<double>(theirs[i]));
      worst = difference > worst || std::isnan(difference) ? difference : worst;
      peak = std::max(peak, std::abs(static_cast<double>(theirs[i])));
    }
    const bool alike = ours.size() == theirs.size() && worst / peak < kTolerance;
    if (!alike && first.empty()) first = name;
    if (ours.size() == theirs.size()) {
      std::printf("  %-12s %.1e%s\n", name.c_str(), worst / peak, alike ? "" : " differs");
    } else {
      std::printf("  %-12s %zu values, transformers has %zu\n", name.c_str(), ours.size(), theirs.size());
    }
  }
  return first;
}

// Names a scheme that computes in f32 with what the files have.
std::vector<std::string> scheme_for(const std::string& model) {
  const auto weights = open_weights(model);
  if (weights->metadata("quantization_config") != nullptr) return {"quantization.use=auto"};
  if (weights->convention() == "gguf") return {"quantization.activations=f32"};
  return {"quantization.use=none", "quantization.dtype=fp32"};
}

int compare(const Args& args) {
  EngineOptions options;
  options.config = args.model;
  options.set = scheme_for(args.model);
  for (const char* setting :
       {"kv_cache.format=fp32", "kv_cache.capacity=64", "sampler.chain=[]", "sampler.select=greedy"}) {
    options.set.emplace_back(setting);
  }
  options.plugin_dirs = args.plugin_dirs;
  options.model_dirs = args.model_dirs;
  options.score_rows = kTokens;
  const auto engine = Engine::open(options);
  const ModelInfo& info = engine->pipeline().model();
  std::printf("%s: architecture %s, %u layers, %u tokens of vocabulary; every key and tensor is read\n",
              args.model.c_str(), info.architecture.c_str(), info.layers, info.vocab);
  const std::vector<int32_t> tokens = tokens_for(info.vocab);
  const Rows rows = rows_of(*engine, tokens);
  const TemporaryFolder folder;
  std::string reason;
  const std::string version = run_transformers(args, tokens, folder.path(), reason);
  if (version.empty()) {
    std::printf("not compared with transformers: %s\n", reason.c_str());
    return kOk;
  }
  std::printf("largest difference to transformers %s, as a share of the largest value\n", version.c_str());
  const std::string first = first_difference(rows, folder.path(), info.layers);
  std::printf(first.empty() ? "equal to %g\n" : "not equal to %g: %s is the first that differs\n", kTolerance,
              first.c_str());
  return first.empty() ? kOk : kFailed;
}

int run(Args args) {
  if (args.subject.ends_with(".toml")) {
    const fs::path file = args.subject;
    static_cast<void>(family_text(file));  // throws what is wrong with it
    std::printf("%s: no mistake was found\n", args.subject.c_str());
    if (args.model.empty()) {
      std::printf("--model FOLDER checks it with a model\n");
      return kOk;
    }
    args.model_dirs.insert(args.model_dirs.begin(), file.has_parent_path() ? file.parent_path() : fs::path("."));
  } else if (!args.model.empty()) {
    throw Error(ErrorCode::kUsage, "--model belongs to a family's file; " + args.subject + " is a model already");
  } else {
    args.model = args.subject;
  }
  return compare(args);
}

}  // namespace

Run add_model(CLI::App& app) {
  CLI::App* model = app.add_subcommand("model", "Work on model families.");
  model->require_subcommand(1);
  CLI::App* check = model->add_subcommand(
      "check",
      "Check a family's file, and a model by its family: that every key and tensor is read, and, where Python has "
      "transformers, that rows after each layer and the logits are the same. The exit code is 1 where they differ.");
  auto args = std::make_shared<Args>();
  check->add_option("FAMILY_OR_MODEL", args->subject, "A family (.toml), a Hugging Face folder or a .gguf file")
      ->required();
  check->add_option("--model", args->model, "A model for the family's file: its folder or file");
  check->add_option("--python", args->python, "Python that has torch and transformers")->capture_default_str();
  check->add_option("--plugin-dir", args->plugin_dirs, "Search this folder for plugins first (repeatable)")
      ->allow_extra_args(false);
  check->add_option("--model-dir", args->model_dirs, "Search this folder for model families first (repeatable)")
      ->allow_extra_args(false);
  return [check, args] { return check->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
