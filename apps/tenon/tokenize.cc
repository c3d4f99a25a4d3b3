#include <sstream>

#include "command.h"
#include "standard_output.h"
#include "text_input.h"

namespace tenon::app {
namespace {

struct Args {
  std::string model, text, text_file, ids;
  bool parse_special = false, no_bos = false;
};

std::string read_text(const Args& args) {
  if (!args.text.empty()) return args.text;
  return args.text_file.empty() ? text_of_input(kTextBytes) : text_of_file(args.text_file);
}

// Reads ids that are separated by anything that is no digit: "1 2 3", "[1, 2, 3]".
std::vector<int32_t> parse_ids(std::string text, int32_t vocab) {
  for (char& c : text) c = std::isdigit(static_cast<unsigned char>(c)) != 0 ? c : ' ';
  std::istringstream words(text);
  std::vector<int32_t> ids;
  for (std::string word; words >> word;) {
    const int64_t id = word.size() > 10 ? INT64_MAX : std::stoll(word);
    if (id >= vocab) {
      throw Error(ErrorCode::kRequest,
                  "token " + word + " is not of the vocabulary (0 to " + std::to_string(vocab - 1) + ")");
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

int run(const Args& args) {
  const std::unique_ptr<Weights> weights = open_weights(args.model);
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(*weights);
  std::string out;
  if (!args.ids.empty()) {
    const std::string ids = args.ids == "-" ? text_of_input(kTextBytes) : args.ids;
    out = decode(*tokenizer, parse_ids(ids, tokenizer->info().vocab_size), {.show_control = true});
  } else {
    for (const int32_t id :
         tokenizer->encode(read_text(args), {.add_special = !args.no_bos, .parse_special = args.parse_special})) {
      out += (out.empty() ? "" : " ") + std::to_string(id);
    }
    out += '\n';
  }
  return print_now(out) ? kOk : kIo;
}

}  // namespace

Run add_tokenize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenize", "Turn text into token ids, on one line, or ids back into text.");
  auto args = std::make_shared<Args>();
  command->add_option("MODEL", args->model, "A .gguf file or a Hugging Face folder")->required();
  auto* text = command->add_option("-p,--text", args->text, "The text; without it and --text-file, standard input");
  auto* file = command->add_option("-f,--text-file", args->text_file, "Read the text from a file")->excludes(text);
  command->add_option("--ids", args->ids, "Ids to turn into text; - reads them from standard input")
      ->excludes(text)
      ->excludes(file);
  command->add_flag("--parse-special", args->parse_special, "Names of special tokens in the text mean those tokens");
  command->add_flag("--no-special", args->no_bos, "Add no token at the beginning or end");
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
