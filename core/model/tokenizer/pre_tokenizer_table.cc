// This is a table: it has, for each name that GGUF files use, the steps as the model's own tokenizer.json states them,
// with the pattern word for word. Files name the same rules differently, so there are aliases; an unknown name is an
// error, since a guess would change ids unnoticed.
#include "pre_tokenizer_table.h"

#include <algorithm>
#include <array>
#include <span>

#include "tenon/core/error.h"

namespace tenon::text {
namespace {

constexpr std::string_view kLineBreak = R"([\r\n])";
constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kHan = R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
constexpr std::string_view kLlama3 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
                                     R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
// These are the cased letters as of Unicode 11, listed one by one in DeepSeek LLM's file.
constexpr std::string_view kDeepSeekLetters =
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF})"
    R"(\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1})"
    R"(\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5})"
    R"(\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A})"
    R"(\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B})"
    R"(\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC})"
    R"(\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"
    R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134})"
    R"(\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4})"
    R"(\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787})"
    R"(\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A})"
    R"(\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2})"
    R"(\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)";

constexpr std::string_view kDeepSeekMarks =
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)";

struct Row {
  std::string_view name;
  std::array<std::string_view, 6> patterns;  // each isolates its matches
  bool nfc = false;
  bool ignore_merges = false;
  bool adds_bos = false;
};

constexpr std::array kRows{
    Row{"gpt-2", {kGpt2Pattern}},
    Row{"llama-bpe", {kLlama3}, false, true, true},
    Row{"smollm", {kDigit, kGpt2Pattern}},
    Row{"qwen2", {kQwen2}, true},
    Row{"deepseek-llm", {kLineBreak, kDeepSeekLetters, kDeepSeekMarks, R"(\s+$)", kHan, kDigit}},
    Row{"deepseek-coder", {kLineBreak, R"(\s?\p{L}+)", R"(\s?\p{P}+)", kHan, kDigit}},
    Row{"deepseek-v3", {R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)", kDeepSeek3}},
    Row{"mpt", {kGpt2Pattern}, true},
    Row{"command-r", {kDigit, kGpt2Pattern}, true},
};

struct Alias {
  std::string_view name;
  std::string_view of;
};

// These are other names in use for the same rules.
constexpr std::array kAliases{
    Alias{"gpt2", "gpt-2"},       Alias{"phi-2", "gpt-2"},
    Alias{"llama3", "llama-bpe"}, Alias{"llama-v3", "llama-bpe"},
    Alias{"starcoder", "smollm"}, Alias{"refact", "smollm"},
    Alias{"olmo", "mpt"},         Alias{"deepseek-r1-qwen", "qwen2"},
};

}  // namespace

std::vector<std::string_view> published_pre_tokenizers() {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) names.push_back(row.name);
  return names;
}

PublishedPreTokenizer published_pre_tokenizer(const std::string& name, const std::string& file) {
  const auto alias = std::find_if(kAliases.begin(), kAliases.end(), [&](const Alias& a) { return a.name == name; });
  const std::string_view wanted = alias == kAliases.end() ? std::string_view(name) : alias->of;
  const auto row = std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.name == wanted; });
  if (row == kRows.end()) {
    std::string known;
    for (const Row& r : kRows) known.append(known.empty() ? "" : ", ").append(r.name);
    for (const Alias& a : kAliases) known.append(", ").append(a.name);
    throw Error(ErrorCode::kModel, SourcePosition{file},
                "tokenizer.ggml.pre: unknown pre-tokenizer \"" + name + "\"; supported: " + known);
  }
  std::vector<PreTokenizerStep> steps;
  for (const std::string_view pattern : row->patterns) {
    if (!pattern.empty()) steps.push_back(SplitStep{Regex(pattern), SplitBehavior::kIsolated, false});
  }
  steps.push_back(ByteMap{});
  PublishedPreTokenizer result;
  if (row->nfc) result.normalizer.push_back(UnicodeForm::kNfc);
  result.pre_tokenizer = PreTokenizer(std::move(steps));
  result.ignore_merges = row->ignore_merges;
  result.adds_bos = row->adds_bos;
  return result;
}

}  // namespace tenon::text
