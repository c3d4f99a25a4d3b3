// The parser is a recursive descent: each level of Jinja's precedence is a function that reads its operands by the next
// higher level and makes a node of expressions.h of them, from tuple() down to primary() and postfix().
//
// While it reads, the parser notes each scope's names, so that it knows at the end which of them a scope reads before
// anything has set them (finish()). Level and count_part() bound the nesting, since evaluation recurses as deep.
#include "expression_parser.h"

#include "filters.h"
#include "functions.h"
#include "methods.h"
#include "tests.h"

namespace tenon::jinja {

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
  constexpr uint32_t kDeepest = 100;
  if (parser.depth_ >= kDeepest) {
    throw SyntaxFailure(parser.tokens_.current().offset,
                        "expressions and blocks are nested more than " + std::to_string(kDeepest) + " deep");
  }
  ++parser.depth_;
}

void ExpressionParser::count_part(size_t& parts) const {
  constexpr size_t kLongest = 300;
  if (++parts > kLongest) {
    throw SyntaxFailure(tokens_.current().offset, "an expression has more than " + std::to_string(kLongest) + " parts");
  }
}

void ExpressionParser::unknown(uint32_t at, std::string message) {
  if (!guarded_) unknown_.push_back({at, std::move(message)});
}

void ExpressionParser::finish() {
  if (!unknown_.empty()) throw SyntaxFailure(unknown_.front().offset, unknown_.front().message);
  for (const auto& [name, at] : read_) {
    if (is_unsupported_function(name) && !set_.contains(name))
      throw SyntaxFailure(at, "\"" + name + "\" is not supported");
  }
  std::map<uint32_t, std::string> texts;
  for (const auto& [name, number] : names_) texts.emplace(number, name);
  for (const Use& use : uses_) {
    for (const uint32_t name : use.set_first) {
      const Use* around = use.around;
      while (around != nullptr && !around->mentioned.contains(name)) around = around->around;
      if (around != nullptr) continue;
      use.undefined->emplace_back(name, Value::undefined("'" + texts[name] + "' is undefined"));
    }
  }
}

ExpressionParser::Scoped::Scoped(ExpressionParser& parser) : parser_(parser), use_(&parser.uses_.emplace_back()) {
  use_->around = parser.use_;
  parser.use_ = use_;
}

uint32_t ExpressionParser::number(const std::string& name) {
  return names_.emplace(name, static_cast<uint32_t>(names_.size())).first->second;
}

uint32_t ExpressionParser::read(const std::string& name) {
  read_.emplace(name, tokens_.current().offset);
  if (name == "varargs" || name == "kwargs" || name == "caller") special_names_.insert(name);
  const uint32_t result = number(name);
  use_->mentioned.insert(result);
  return result;
}

uint32_t ExpressionParser::set(const std::string& name) {
  set_.insert(name);
  targets_.push_back(number(name));
  return targets_.back();
}

void ExpressionParser::mark_set() {
  for (const uint32_t name : std::exchange(targets_, {})) {
    if (use_->mentioned.insert(name).second && !guarded_) use_->set_first.insert(name);
  }
}

void ExpressionParser::mark_parameters() {
  for (const uint32_t name : std::exchange(targets_, {})) use_->mentioned.insert(name);
}

ExpressionPtr ExpressionParser::tuple(bool with_conditional) {
  const uint32_t at = tokens_.current().offset;
  const auto ends = [&] {
    return tokens_.is(TokenKind::kVariableEnd) || tokens_.is(TokenKind::kBlockEnd) || tokens_.is_sign(")");
  };
  Expressions items;
  bool several = false;
  while (!ends()) {
    items.push_back(expression(with_conditional));
    if (!tokens_.skip_sign(",")) break;
    several = true;
  }
  if (!several && !items.empty()) return std::move(items.front());
  if (!several && !tokens_.is_sign(")")) tokens_.fail_expected("an expression");
  return std::make_unique<SequenceLiteral>(at, Sequence::Kind::kTuple, std::move(items));
}

ExpressionPtr ExpressionParser::expression(bool with_conditional) {
  const Level level(*this);
  return with_conditional ? conditional() : disjunction();
}

ExpressionPtr ExpressionParser::conditional() {
  const size_t unknown_before = unknown_.size();
  ExpressionPtr then = disjunction();
  size_t parts = 0;
  while (tokens_.is_name("if")) {
    count_part(parts);
    const uint32_t at = tokens_.next().offset;
    ExpressionPtr condition = disjunction(), otherwise;
    if (tokens_.skip_name("else")) otherwise = expression();
    unknown_.resize(unknown_before);
    then = std::make_unique<Conditional>(at, std::move(condition), std::move(then), std::move(otherwise));
  }
  return then;
}

ExpressionPtr ExpressionParser::disjunction() {
  ExpressionPtr left = conjunction();
  for (size_t parts = 0; tokens_.is_name("or");) {
    count_part(parts);
    const uint32_t at = tokens_.next().offset;
    left = std::make_unique<Logic>(at, false, std::move(left), conjunction());
  }
  return left;
}

ExpressionPtr ExpressionParser::conjunction() {
  ExpressionPtr left = negation();
  for (size_t parts = 0; tokens_.is_name("and");) {
    count_part(parts);
    const uint32_t at = tokens_.next().offset;
    left = std::make_unique<Logic>(at, true, std::move(left), negation());
  }
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  if (!tokens_.is_name("not")) return comparison();
  const Level level(*this);
  const uint32_t at = tokens_.next().offset;
  return std::make_unique<Prefixed>(at, Prefix::kNot, negation());
}

ExpressionPtr ExpressionParser::comparison() {
  static constexpr std::pair<std::string_view, Comparison> kSigns[] = {
      {"==", Comparison::kEqual},  {"!=", Comparison::kUnequal},   {"<", Comparison::kLess},
      {">", Comparison::kGreater}, {"<=", Comparison::kLessEqual}, {">=", Comparison::kGreaterEqual}};
  const uint32_t at = tokens_.current().offset;
  ExpressionPtr first = sum();
  Comparing::Comparisons comparisons;
  while (true) {
    const auto* sign =
        std::find_if(std::begin(kSigns), std::end(kSigns), [&](const auto& s) { return tokens_.is_sign(s.first); });
    if (sign != std::end(kSigns)) {
      tokens_.next();
      comparisons.emplace_back(sign->second, sum());
    } else if (tokens_.skip_name("in")) {
      comparisons.emplace_back(Comparison::kIn, sum());
    } else if (tokens_.is_name("not") && tokens_.look().kind == TokenKind::kName && tokens_.look().text == "in") {
      tokens_.next();
      tokens_.next();
      comparisons.emplace_back(Comparison::kNotIn, sum());
    } else {
      break;
    }
  }
  if (comparisons.empty()) return first;
  return std::make_unique<Comparing>(at, std::move(first), std::move(comparisons));
}

ExpressionPtr ExpressionParser::chain(ExpressionPtr (ExpressionParser::*operand)(),
                                      std::initializer_list<std::pair<std::string_view, Operator>> signs) {
  ExpressionPtr left = (this->*operand)();
  for (size_t parts = 0;;) {
    const auto* sign =
        std::find_if(signs.begin(), signs.end(), [&](const auto& s) { return tokens_.is_sign(s.first); });
    if (sign == signs.end()) return left;
    count_part(parts);
    const uint32_t at = tokens_.next().offset;
    left = std::make_unique<Calculation>(at, sign->second, std::move(left), (this->*operand)());
  }
}

ExpressionPtr ExpressionParser::sum() {
  return chain(&ExpressionParser::concatenation, {{"+", Operator::kAdd}, {"-", Operator::kSubtract}});
}

ExpressionPtr ExpressionParser::concatenation() {
  const uint32_t at = tokens_.current().offset;
  Expressions parts;
  parts.push_back(product());
  while (tokens_.skip_sign("~")) parts.push_back(product());
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_unique<Concatenation>(at, std::move(parts));
}

ExpressionPtr ExpressionParser::product() {
  return chain(
      &ExpressionParser::power,
      {{"*", Operator::kMultiply}, {"/", Operator::kDivide}, {"//", Operator::kFloorDivide}, {"%", Operator::kModulo}});
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary(true);
  for (size_t parts = 0; tokens_.is_sign("**");) {
    count_part(parts);
    const uint32_t at = tokens_.next().offset;
    left = std::make_unique<Calculation>(at, Operator::kPower, std::move(left), unary(true));
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const Level level(*this);
  ExpressionPtr result;
  if (tokens_.is_sign("-") || tokens_.is_sign("+")) {
    const Token& sign = tokens_.next();
    const Prefix prefix = sign.text == "-" ? Prefix::kMinus : Prefix::kPlus;
    const uint32_t at = sign.offset;
    result = std::make_unique<Prefixed>(at, prefix, unary(false));
  } else {
    result = primary();
  }
  result = postfix(std::move(result));
  return with_filters ? filters_and_tests(std::move(result)) : std::move(result);
}

ExpressionPtr ExpressionParser::primary() {
  const Token& token = tokens_.current();
  const uint32_t at = token.offset;
  if (token.kind == TokenKind::kName) return name();
  if (token.kind == TokenKind::kConstant) {
    Value value = tokens_.next().value;
    if (value.as_text() == nullptr) return std::make_unique<Constant>(at, std::move(value));
    Text text = *value.as_text();
    while (tokens_.is(TokenKind::kConstant) && tokens_.current().value.as_text() != nullptr)
      text.append(*tokens_.next().value.as_text());
    return std::make_unique<Constant>(at, Value(std::move(text)));
  }
  if (tokens_.is_sign("[")) return list();
  if (tokens_.is_sign("{")) return dict();
  if (!tokens_.is_sign("(")) tokens_.fail_expected("an expression");
  tokens_.next();
  ExpressionPtr inner = tuple();
  tokens_.expect_sign(")");
  return inner;
}

ExpressionPtr ExpressionParser::name() {
  const uint32_t at = tokens_.current().offset;
  const std::string& name = tokens_.current().text;
  ExpressionPtr result;
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    result = std::make_unique<Constant>(at, Value(name == "true" || name == "True"));
  } else if (name == "none" || name == "None") {
    result = std::make_unique<Constant>(at, Value());
  } else {
    result = std::make_unique<Name>(at, read(name), name);
  }
  tokens_.next();
  return result;
}

ExpressionPtr ExpressionParser::list() {
  const uint32_t at = tokens_.expect_sign("[").offset;
  Expressions items;
  while (!tokens_.is_sign("]")) {
    items.push_back(expression());
    if (!tokens_.skip_sign(",")) break;
  }
  tokens_.expect_sign("]");
  return std::make_unique<SequenceLiteral>(at, Sequence::Kind::kList, std::move(items));
}

ExpressionPtr ExpressionParser::dict() {
  const uint32_t at = tokens_.expect_sign("{").offset;
  DictLiteral::Entries entries;
  while (!tokens_.is_sign("}")) {
    ExpressionPtr key = expression();
    tokens_.expect_sign(":");
    entries.emplace_back(std::move(key), expression());
    if (!tokens_.skip_sign(",")) break;
  }
  tokens_.expect_sign("}");
  return std::make_unique<DictLiteral>(at, std::move(entries));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr of) {
  for (size_t parts = 0;; count_part(parts)) {
    if (tokens_.is_sign(".")) {
      of = dot(std::move(of));
    } else if (tokens_.is_sign("[")) {
      of = subscript(std::move(of));
    } else if (tokens_.is_sign("(")) {
      of = call_of(std::move(of));
    } else {
      return of;
    }
  }
}

ExpressionPtr ExpressionParser::dot(ExpressionPtr of) {
  const uint32_t at = tokens_.expect_sign(".").offset;
  if (tokens_.is(TokenKind::kConstant) && tokens_.current().value.as_integer() != nullptr) {
    auto key = std::make_unique<Constant>(tokens_.current().offset, tokens_.current().value);
    tokens_.next();
    return std::make_unique<Element>(at, std::move(of), std::move(key));
  }
  const Token& token = tokens_.expect(TokenKind::kName, "a name or a number");
  const auto* object = dynamic_cast<const Name*>(of.get());
  if (object != nullptr && object->name == "loop" && is_unsupported_loop_attribute(token.text)) {
    throw SyntaxFailure(token.offset, "loop." + token.text + " is not supported");
  }
  return std::make_unique<Attribute>(at, std::move(of), token.text);
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr of) {
  const uint32_t at = tokens_.expect_sign("[").offset;
  const auto bound = [&]() -> ExpressionPtr {
    return tokens_.is_sign(":") || tokens_.is_sign("]") ? nullptr : expression();
  };
  ExpressionPtr key = bound();
  if (key != nullptr && tokens_.skip_sign("]")) return std::make_unique<Element>(at, std::move(of), std::move(key));
  tokens_.expect_sign(":");
  Slice::Bounds bounds;
  bounds.start = std::move(key);
  bounds.stop = bound();
  if (tokens_.skip_sign(":")) bounds.step = bound();
  tokens_.expect_sign("]");
  return std::make_unique<Slice>(at, std::move(of), std::move(bounds));
}

ExpressionPtr ExpressionParser::call_of(ExpressionPtr of) {
  const uint32_t at = tokens_.current().offset;
  const auto* method = dynamic_cast<const Attribute*>(of.get());
  if (method != nullptr && is_unsupported_method(method->name.bytes())) {
    throw SyntaxFailure(method->offset, "the method \"" + method->name.bytes() + "\" is not supported");
  }
  return std::make_unique<Call>(at, std::move(of), arguments());
}

std::unique_ptr<const Call> ExpressionParser::call() {
  const uint32_t at = tokens_.current().offset;
  ExpressionPtr parsed = expression();
  if (dynamic_cast<const Call*>(parsed.get()) == nullptr) throw SyntaxFailure(at, "expected a call");
  return std::unique_ptr<const Call>(static_cast<const Call*>(parsed.release()));
}

void ExpressionParser::argument(ArgumentExpressions& into) {
  const uint32_t at = tokens_.current().offset;
  const auto expect = [&](bool allowed) {
    if (!allowed) throw SyntaxFailure(at, "an argument cannot stand here: first come those without names");
  };
  if (tokens_.skip_sign("*")) {
    expect(into.all_positional == nullptr && into.all_named == nullptr);
    into.all_positional = expression();
  } else if (tokens_.skip_sign("**")) {
    expect(into.all_named == nullptr);
    into.all_named = expression();
  } else if (tokens_.is(TokenKind::kName) && tokens_.look().kind == TokenKind::kSign && tokens_.look().text == "=") {
    expect(into.all_named == nullptr);
    const std::string name = tokens_.next().text;
    tokens_.next();
    into.named.emplace_back(name, expression());
  } else {
    expect(into.all_positional == nullptr && into.all_named == nullptr && into.named.empty());
    into.positional.push_back(expression());
  }
}

ArgumentExpressions ExpressionParser::arguments() {
  tokens_.expect_sign("(");
  ArgumentExpressions result;
  while (!tokens_.is_sign(")")) {
    argument(result);
    if (!tokens_.skip_sign(",")) break;
  }
  tokens_.expect_sign(")");
  return result;
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr of) {
  for (size_t parts = 0;; count_part(parts)) {
    if (tokens_.skip_sign("|")) {
      of = filter(std::move(of));
    } else if (tokens_.skip_name("is")) {
      of = test(std::move(of));
    } else if (tokens_.is_sign("(")) {
      of = call_of(std::move(of));
    } else {
      return of;
    }
  }
}

std::unique_ptr<const Filtered> ExpressionParser::filter(ExpressionPtr of) {
  const Token& token = tokens_.expect(TokenKind::kName, "the name of a filter");
  const uint32_t at = token.offset;
  const std::string name = token.text;
  if (is_unsupported_filter(name)) throw SyntaxFailure(at, "the filter \"" + name + "\" is not supported");
  const Filter* known = find_filter(name);
  if (known == nullptr) unknown(at, "there is no filter \"" + name + "\"");
  ArgumentExpressions given;
  if (tokens_.is_sign("(")) given = arguments();
  return std::make_unique<Filtered>(at, known, name, std::move(given), std::move(of));
}

std::vector<std::unique_ptr<const Filtered>> ExpressionParser::filters() {
  std::vector<std::unique_ptr<const Filtered>> result;
  do {
    result.push_back(filter(nullptr));
  } while (tokens_.skip_sign("|"));
  return result;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr of) {
  const bool negated = tokens_.skip_name("not");
  const Token& token = tokens_.expect(TokenKind::kName, "the name of a test");
  const uint32_t at = token.offset;
  const std::string name = token.text;
  const Test* known = find_test(name);
  if (known == nullptr) unknown(at, "there is no test \"" + name + "\"");
  ArgumentExpressions given;
  const bool argument_follows =
      tokens_.is(TokenKind::kName) || tokens_.is(TokenKind::kConstant) || tokens_.is_sign("[") || tokens_.is_sign("{");
  if (tokens_.is_sign("(")) {
    given = arguments();
  } else if (argument_follows && !tokens_.is_one_of({"else", "or", "and"})) {
    if (tokens_.is_name("is")) throw SyntaxFailure(tokens_.current().offset, "tests cannot follow each other");
    given.positional.push_back(postfix(primary()));
  }
  ExpressionPtr result = std::make_unique<Tested>(at, known, name, std::move(given), std::move(of));
  return negated ? std::make_unique<Prefixed>(at, Prefix::kNot, std::move(result)) : std::move(result);
}

Target ExpressionParser::target(bool with_members) {
  const Level level(*this);
  const auto one = [&]() -> Target {
    if (tokens_.skip_sign("(")) {
      Target inner = target(with_members);
      tokens_.expect_sign(")");
      return inner;
    }
    const Token& token = tokens_.expect(TokenKind::kName, "a name");
    const bool member = with_members && tokens_.is_sign(".");
    if (token.text == "loop" || ((token.text == "true" || token.text == "false" || token.text == "none") && !member)) {
      throw SyntaxFailure(token.offset, "\"" + token.text + "\" cannot be set");
    }
    if (!member) return Target(Target::Variable{set(token.text)});
    tokens_.next();
    Target::Member place{token.offset, read(token.text), token.text, {}};
    place.name = tokens_.expect(TokenKind::kName, "a name").text;
    return Target(std::move(place));
  };
  Target first = one();
  if (!tokens_.is_sign(",")) return first;
  Target::Several several;
  several.push_back(std::move(first));
  while (tokens_.skip_sign(",")) {
    if (!tokens_.is(TokenKind::kName) && !tokens_.is_sign("(")) break;
    if (tokens_.is_name("in")) break;
    several.push_back(one());
  }
  return Target(std::move(several));
}

}  // namespace tenon::jinja
