// This reads expressions by Jinja's grammar, with a method for each level of precedence.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "expressions.h"
#include "statements.h"
#include "token_stream.h"

namespace tenon::jinja {

class ExpressionParser {
 public:
  // These are a scope's names: those it mentions itself, and those of them that it sets first, under no condition.
  struct Use {
    Use* around = nullptr;
    std::set<uint32_t> mentioned, set_first;
    std::shared_ptr<ScopedBlock::Undefineds> undefined = std::make_shared<ScopedBlock::Undefineds>();
  };

  ExpressionParser(TokenStream& tokens, std::map<std::string, uint32_t, std::less<>>& names)
      : tokens_(tokens), names_(names) {}

  // Reads an expression, or several with commas, which are a tuple. with_conditional: "a if b" is read as one.
  ExpressionPtr tuple(bool with_conditional = true);
  ExpressionPtr expression(bool with_conditional = true);
  // Names, attributes of namespaces if they are allowed, and tuples of them.
  Target target(bool with_members);
  // Returns the call, or throws at anything else.
  std::unique_ptr<const Call> call();
  // Returns the filters of a block: name(arguments) | name ...
  std::vector<std::unique_ptr<const Filtered>> filters();

  // These return the number of a name: of any, of one that is read here, and of a target.
  uint32_t number(const std::string& name);
  uint32_t read(const std::string& name);
  uint32_t set(const std::string& name);

  // While one of these lives, what is parsed is in a scope of its own.
  class Scoped {
   public:
    explicit Scoped(ExpressionParser& parser);
    Scoped(const Scoped&) = delete;
    Scoped& operator=(const Scoped&) = delete;
    ~Scoped() { parser_.use_ = use_->around; }

    // It is filled when everything is parsed.
    std::shared_ptr<const ScopedBlock::Undefineds> undefined() const { return use_->undefined; }

   private:
    ExpressionParser& parser_;
    Use* use_;
  };
  // The names of the targets since the last such call are set here in the present scope, or are its parameters.
  void mark_set();
  void mark_parameters();

  // Filters and tests that Jinja does not know are refused where a template always gets to them, and fail elsewhere.
  class Guarded {
   public:
    Guarded(ExpressionParser& parser, bool guarded) : parser_(parser), before_(parser.guarded_) {
      parser.guarded_ = guarded;
    }
    Guarded(const Guarded&) = delete;
    Guarded& operator=(const Guarded&) = delete;
    ~Guarded() { parser_.guarded_ = before_; }

   private:
    ExpressionParser& parser_;
    bool before_;
  };

  // While one of these lives, the parser is one level deeper. Throws SyntaxFailure.
  class Level {
   public:
    explicit Level(ExpressionParser& parser);
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --parser_.depth_; }

   private:
    ExpressionParser& parser_;
  };

  // These are the names varargs, kwargs and caller that were read, for the macros around.
  std::set<std::string> take_special_names() { return std::exchange(special_names_, {}); }
  void add_special_names(std::set<std::string> names) { special_names_.merge(names); }
  // Ends the parsing: fills what scopes have undefined. Throws SyntaxFailure for unknown filters and tests that a
  // template always gets to, and for functions that are not supported.
  void finish();

 private:
  struct Unknown {
    uint32_t offset;
    std::string message;
  };

  ExpressionPtr conditional();
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr name();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr of);
  ExpressionPtr dot(ExpressionPtr of);
  ExpressionPtr subscript(ExpressionPtr of);
  ExpressionPtr call_of(ExpressionPtr of);
  ExpressionPtr filters_and_tests(ExpressionPtr of);
  std::unique_ptr<const Filtered> filter(ExpressionPtr of);
  ExpressionPtr test(ExpressionPtr of);
  ArgumentExpressions arguments();
  void argument(ArgumentExpressions& into);
  // Reads operands with these signs in between, from the left.
  ExpressionPtr chain(ExpressionPtr (ExpressionParser::*operand)(),
                      std::initializer_list<std::pair<std::string_view, Operator>> signs);
  // A chain is at most so long, since it becomes as deep.
  void count_part(size_t& parts) const;
  void unknown(uint32_t at, std::string message);

  TokenStream& tokens_;
  std::map<std::string, uint32_t, std::less<>>& names_;
  std::map<std::string, uint32_t> read_;  // where each name was first read
  std::set<std::string> set_, special_names_;
  std::deque<Use> uses_;
  Use* use_ = nullptr;
  std::vector<uint32_t> targets_;
  std::vector<Unknown> unknown_;
  bool guarded_ = false;
  uint32_t depth_ = 0;
};

}  // namespace tenon::jinja
