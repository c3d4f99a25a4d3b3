// This parses the statements of a chat template, each by the first word of its tag: for, if, set, macro, call,
// filter, generation, break and continue. ExpressionParser reads what stands in them. The language is
// Jinja2's, as far as chat templates use it.
//
// Invariants: a statement is parsed only in a scope (Inner), so that a name that is set in it is not known outside;
// break and continue stand in a loop of the same scope; and nesting is bounded by ExpressionParser::Level.
// SyntaxFailure says what is wrong, and where.
#include "parser.h"

#include "expression_parser.h"

namespace tenon::jinja {
namespace {

class Parser {
 public:
  explicit Parser(Program& program)
      : tokens_(tokenize(program.source)), program_(program), expressions_(tokens_, program.names) {}

  void run() {
    const Inner root(*this, false);
    program_.block = root.block({});
    expressions_.finish();
  }

 private:
  using Words = std::initializer_list<std::string_view>;

  // While one of these lives, what is read is in a scope of its own: it is not guarded by a condition
  // around, and a jump leaves only the loops in it.
  class Inner {
   public:
    Inner(Parser& parser, bool is_loop)
        : guarded_(parser.expressions_, false), scope_(parser.expressions_), parser_(parser), before_(parser.in_loop_) {
      parser.in_loop_ = is_loop;
    }
    Inner(const Inner&) = delete;
    Inner& operator=(const Inner&) = delete;
    ~Inner() { parser_.in_loop_ = before_; }

    // Reads a statement's body; without words, the whole template.
    ScopedBlock block(Words ends) const {
      Block statements = ends.size() == 0 ? parser_.block(ends) : parser_.body(ends);
      return {std::move(statements), scope_.undefined()};
    }

   private:
    ExpressionParser::Guarded guarded_;
    ExpressionParser::Scoped scope_;
    Parser& parser_;
    bool before_;
  };

  [[noreturn]] static void fail(uint32_t at, const std::string& message) { throw SyntaxFailure(at, message); }

  // Reads until one of the words begins a tag, and stops after the word; without words, until the end.
  Block block(Words ends) {
    const ExpressionParser::Level level(expressions_);
    const uint32_t start = tokens_.current().offset;
    Block result;
    while (!tokens_.is(TokenKind::kEnd)) {
      const Token& token = tokens_.next();
      if (token.kind == TokenKind::kData) {
        result.push_back(std::make_unique<Data>(token.offset, token.text));
      } else if (token.kind == TokenKind::kVariableBegin) {
        result.push_back(std::make_unique<Output>(token.offset, expressions_.tuple()));
        tokens_.expect(TokenKind::kVariableEnd, "\"}}\"");
      } else {
        if (tokens_.is_one_of(ends)) {
          end_ = tokens_.next().text;
          return result;
        }
        statement(result);
        tokens_.expect(TokenKind::kBlockEnd, "\"%}\"");
      }
    }
    if (ends.size() == 0) return result;
    std::string wanted;
    for (const std::string_view end : ends) wanted.append(wanted.empty() ? "" : " or ").append(end);
    fail(start, "the block that begins here does not end; expected " + wanted);
  }

  // Reads the body of a statement, after the end of its tag.
  Block body(Words ends) {
    tokens_.skip_sign(":");
    tokens_.expect(TokenKind::kBlockEnd, "\"%}\"");
    return block(ends);
  }

  void statement(Block& into) {
    const Token& token = tokens_.expect(TokenKind::kName, "the name of a tag");
    const std::string& word = token.text;
    const uint32_t at = token.offset;
    static constexpr std::string_view kUnsupported[] = {"autoescape", "block", "extends", "from", "import", "include"};
    if (word == "if") {
      into.push_back(parse_if(at));
    } else if (word == "for") {
      into.push_back(parse_for(at));
    } else if (word == "set") {
      into.push_back(parse_set(at));
    } else if (word == "macro") {
      into.push_back(parse_macro(at));
    } else if (word == "call") {
      into.push_back(parse_call(at));
    } else if (word == "filter" || word == "generation") {
      into.push_back(parse_captured(at, word == "filter"));
    } else if (word == "with") {
      into.push_back(parse_with(at));
    } else if (word == "print") {
      do {
        into.push_back(std::make_unique<Output>(at, expressions_.expression()));
      } while (tokens_.skip_sign(","));
    } else if (word == "break" || word == "continue") {
      if (!in_loop_) fail(at, "\"" + word + "\" stands outside of a loop");
      into.push_back(std::make_unique<Jump>(at, word == "break" ? Flow::kBreak : Flow::kContinue));
    } else if (std::find(std::begin(kUnsupported), std::end(kUnsupported), word) != std::end(kUnsupported)) {
      fail(at, "the tag \"" + word + "\" is not supported");
    } else {
      fail(at, "found the tag \"" + word + "\", which begins nothing" +
                   (word.starts_with("end") || word.starts_with("el") ? " here" : ""));
    }
  }

  StatementPtr parse_if(uint32_t at) {
    const ExpressionParser::Guarded guarded(expressions_, true);
    std::vector<If::Branch> branches;
    Block otherwise;
    do {
      If::Branch branch;
      branch.condition = expressions_.tuple(false);
      branch.block = body({"elif", "else", "endif"});
      branches.push_back(std::move(branch));
    } while (end_ == "elif");
    if (end_ == "else") otherwise = body({"endif"});
    return std::make_unique<If>(at, std::move(branches), std::move(otherwise));
  }

  StatementPtr parse_for(uint32_t at) {
    Target target = expressions_.target(false);
    tokens_.expect_name("in");
    For::Parts parts{std::move(target), expressions_.tuple(false), nullptr, {}, {}, expressions_.number("loop")};
    std::optional<Inner> inner(std::in_place, *this, true);
    expressions_.set("loop");
    expressions_.mark_parameters();
    if (tokens_.skip_name("if")) parts.condition = expressions_.expression();
    if (tokens_.is_name("recursive")) fail(tokens_.current().offset, "recursive loops are not supported");
    parts.block = inner->block({"endfor", "else"});
    inner.reset();
    if (end_ == "else") {
      const Inner otherwise(*this, in_loop_);
      parts.otherwise = otherwise.block({"endfor"});
    }
    return std::make_unique<For>(at, std::move(parts));
  }

  StatementPtr parse_set(uint32_t at) {
    Target target = expressions_.target(true);
    if (tokens_.skip_sign("=")) {
      ExpressionPtr value = expressions_.tuple();
      expressions_.mark_set();
      return std::make_unique<Set>(at, std::move(target), std::move(value));
    }
    expressions_.mark_set();
    std::vector<std::unique_ptr<const Filtered>> filters;
    if (tokens_.skip_sign("|")) filters = expressions_.filters();
    const Inner inner(*this, false);
    ScopedBlock block = inner.block({"endset"});
    return std::make_unique<Captured>(at, std::move(target), std::move(filters), std::move(block));
  }

  StatementPtr parse_captured(uint32_t at, bool filtered) {
    const Inner inner(*this, false);
    std::vector<std::unique_ptr<const Filtered>> filters;
    if (filtered) filters = expressions_.filters();
    ScopedBlock block = filtered ? inner.block({"endfilter"}) : inner.block({"endgeneration"});
    return std::make_unique<Captured>(at, std::nullopt, std::move(filters), std::move(block));
  }

  StatementPtr parse_with(uint32_t at) {
    With::Settings settings;
    while (!tokens_.is(TokenKind::kBlockEnd)) {
      if (!settings.empty()) tokens_.expect_sign(",");
      Target target = expressions_.target(false);
      tokens_.expect_sign("=");
      settings.emplace_back(std::move(target), expressions_.expression());
    }
    const Inner inner(*this, in_loop_);
    expressions_.mark_parameters();
    ScopedBlock block = inner.block({"endwith"});
    return std::make_unique<With>(at, std::move(settings), std::move(block));
  }

  void signature(MacroBody& macro) {
    tokens_.expect_sign("(");
    while (!tokens_.is_sign(")")) {
      if (!macro.parameters.empty()) tokens_.expect_sign(",");
      const Token& token = tokens_.expect(TokenKind::kName, "the name of a parameter");
      if (token.text == "caller") fail(token.offset, "a parameter of the name \"caller\" is not supported");
      MacroBody::Parameter parameter;
      parameter.name = token.text;
      parameter.number = expressions_.set(token.text);
      if (tokens_.skip_sign("=")) {
        parameter.otherwise = expressions_.expression();
      } else if (!macro.parameters.empty() && macro.parameters.back().otherwise != nullptr) {
        fail(token.offset, "a parameter without a default follows one that has it");
      }
      macro.parameters.push_back(std::move(parameter));
    }
    tokens_.expect_sign(")");
  }

  // Reads the block of a macro, which takes the further arguments that it mentions.
  void macro_block(MacroBody& macro, const Inner& inner, std::string_view end) {
    expressions_.mark_parameters();
    const std::set<std::string> around = expressions_.take_special_names();
    macro.block = inner.block({end});
    const std::set<std::string> mentioned = expressions_.take_special_names();
    const auto number = [&](const char* name) -> std::optional<uint32_t> {
      if (!mentioned.contains(name)) return std::nullopt;
      return expressions_.number(name);
    };
    macro.varargs = number("varargs");
    macro.kwargs = number("kwargs");
    macro.caller = number("caller");
    expressions_.add_special_names(around);
    expressions_.add_special_names(mentioned);
  }

  StatementPtr parse_macro(uint32_t at) {
    MacroBody macro;
    macro.name = tokens_.expect(TokenKind::kName, "the name of the macro").text;
    const uint32_t number = expressions_.set(macro.name);
    expressions_.mark_set();
    const Inner inner(*this, false);
    signature(macro);
    macro_block(macro, inner, "endmacro");
    return std::make_unique<Macro>(at, number, std::move(macro));
  }

  StatementPtr parse_call(uint32_t at) {
    MacroBody macro;
    macro.name = "caller";
    if (tokens_.is_sign("(")) signature(macro);
    std::unique_ptr<const Call> call = expressions_.call();
    const Inner inner(*this, false);
    // The block of a call is a macro that is called with what its own macro gives it.
    macro_block(macro, inner, "endcall");
    return std::make_unique<CallBlock>(at, std::move(call), std::move(macro));
  }

  TokenStream tokens_;
  Program& program_;
  ExpressionParser expressions_;
  std::string end_;  // the word that ended the last block
  bool in_loop_ = false;
};

}  // namespace

std::unique_ptr<const Program> parse(std::string_view source) {
  constexpr size_t kMostBytes = size_t{1} << 20U;
  if (source.size() > kMostBytes)
    throw SyntaxFailure(0, "the template has more than " + std::to_string(kMostBytes) + " bytes");
  auto program = std::make_unique<Program>();
  program->source = normalized(source);
  Parser(*program).run();
  return program;
}

}  // namespace tenon::jinja
