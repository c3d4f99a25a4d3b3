// EmbeddingRequest is the body, checked; EmbeddingAnswer collects the vectors in the order of the inputs and writes
// them as numbers or in base64.
#include "embeddings.h"

#include <boost/endian/conversion.hpp>
#include <cstring>

#include "answer.h"

namespace tenon::serve {
namespace {

namespace json = boost::json;

Pooling read_pooling(Fields& fields) {
  const std::string name = fields.text("pooling").value_or("mean");
  if (name != "mean" && name != "last") fields.fail("pooling", "\"" + name + "\" is neither \"mean\" nor \"last\"");
  return name == "mean" ? Pooling::kMean : Pooling::kLast;
}

void read_encoding(Fields& fields, EmbeddingRequest& out) {
  const std::string name = fields.text("encoding_format").value_or("float");
  if (name != "float" && name != "base64") {
    fields.fail("encoding_format", "\"" + name + "\" is neither \"float\" nor \"base64\"");
  }
  out.base64 = name == "base64";
}

// A vector may be cut only if its model was trained so that the first numbers
// stand by themselves, and no file says that.
void check_dimensions(Fields& fields, uint32_t width) {
  const auto dimensions = fields.integer("dimensions", 1, INT32_MAX);
  if (!dimensions || *dimensions == width) return;
  fields.fail("dimensions",
              "vectors have " + std::to_string(width) + " numbers, and nothing says that the first " +
                  std::to_string(*dimensions) + " of them stand for the text by themselves",
              "unsupported_value");
}

}  // namespace

EmbeddingRequest parse_embeddings(const json::object& body, const Abilities& abilities) {
  EmbeddingRequest out;
  Fields fields(body);
  check_model(fields, abilities);
  Request request;
  request.embed = read_pooling(fields);
  request.parse_special = fields.boolean("parse_special").value_or(false);
  read_standing(fields, abilities, request);
  out.normalize = fields.boolean("normalize").value_or(true);
  read_encoding(fields, out);
  check_dimensions(fields, abilities.width);
  fields.only("add_special_tokens", {true});
  out.requests.prompts = parse_inputs(fields, "input", abilities.vocab, request);
  for (const Request& one : out.requests.prompts) {
    if (one.tokens.empty() && one.prompt.empty()) fields.fail("input", "a text is empty");
  }
  if (out.requests.prompts.size() > abilities.most_inputs) {
    fields.fail("input", std::to_string(out.requests.prompts.size()) + " inputs are more than " +
                             std::to_string(abilities.most_inputs));
  }
  fields.finish();
  return out;
}

EmbeddingAnswer::EmbeddingAnswer(const EmbeddingRequest& request, std::string model, uint32_t longest)
    : normalize_(request.normalize),
      base64_(request.base64),
      model_(std::move(model)),
      longest_(longest),
      vectors_(request.requests.choices()),
      left_(vectors_.size()) {}

std::string EmbeddingAnswer::add(std::vector<Event> events) {
  for (Event& event : events) {
    if (!event.last) continue;
    --left_;
    if (!failure_) failure_ = failure_of(event, "input", longest_);
    prompt_tokens_ += event.prompt_tokens;
    if (normalize_) tenon::normalize(event.embedding);
    vectors_[event.choice] = std::move(event.embedding);
  }
  return "";
}

json::value EmbeddingAnswer::vector_value(const std::vector<float>& vector) const {
  if (!base64_) return json::array(vector.begin(), vector.end());
  std::string bytes;
  for (const float x : vector) {
    uint32_t bits = 0;
    std::memcpy(&bits, &x, sizeof(bits));
    boost::endian::native_to_little_inplace(bits);
    bytes.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
  }
  return json::string(base64_of(bytes));
}

std::string EmbeddingAnswer::whole() const {
  json::array list;
  for (const std::vector<float>& vector : vectors_) {
    list.push_back(json::object{{"object", "embedding"}, {"index", list.size()}, {"embedding", vector_value(vector)}});
  }
  const json::object usage = {{"prompt_tokens", prompt_tokens_}, {"total_tokens", prompt_tokens_}};
  return json::serialize(
      json::object{{"object", "list"}, {"data", std::move(list)}, {"model", model_}, {"usage", usage}});
}

std::string base64_of(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) {
      bits = bits << 8U | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    }
    for (size_t i = 0; i < 4; ++i) text += at + i > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * i) & 63U];
  }
  return text;
}

}  // namespace tenon::serve
