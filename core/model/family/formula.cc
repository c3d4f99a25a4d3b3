// muParser computes formulas. What it has beyond arithmetic is of no use here and refused: texts, and several results.
#include "formula.h"

#include <muParser.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "../weights/layout.h"

namespace tenon::family {
namespace {

// muParser's own reader is a stream, which takes a want of memory for a text that is no number.
int read_number(const char* text, int* position, double* value) {
  if ((*text < '0' || *text > '9') && *text != '.') return 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), *value);
  if (error != std::errc()) return 0;
  *position += static_cast<int>(end - text);
  return 1;
}

}  // namespace

struct Scope::Impl {
  mu::Parser parser;
  std::vector<std::string> names;
};

Scope::Scope() : impl_(std::make_unique<Impl>()) {
  impl_->parser.AddValIdent(&read_number);
  constexpr unsigned kAsMultiplication = mu::prMUL_DIV;
  impl_->parser.DefineOprt(
      "%", [](double a, double b) { return std::fmod(a, b); }, kAsMultiplication);
  impl_->parser.DefineFun("floor", [](double a) { return std::floor(a); });
}

Scope::~Scope() = default;

bool Scope::is_name(const std::string& text) {
  const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !text.empty() && text[0] >= 'a' && text[0] <= 'z' && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), fits);
}

void Scope::set(const std::string& name, double value) {
  std::vector<std::string>& names = impl_->names;
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  impl_->parser.DefineConst(name, value);
}

const std::vector<std::string>& Scope::names() const {
  return impl_->names;
}

double Scope::value(const Formula& formula) const {
  try {
    impl_->parser.SetExpr(formula.text);
    const double value = impl_->parser.Eval();
    if (impl_->parser.GetNumResults() == 1) return value;
    throw Error(ErrorCode::kConfig, formula.where, "formula \"" + formula.text + "\": expected one value");
  } catch (const mu::ParserError& e) {
    SourcePosition where = formula.where;
    const size_t at = static_cast<size_t>(std::max(0, e.GetPos()));
    if (at <= formula.text.size()) where.column += static_cast<uint32_t>(at);
    std::string message = "formula \"" + formula.text + "\": ";
    if (e.GetCode() == mu::ecUNASSIGNABLE_TOKEN) {
      const std::string nearest = nearest_name(e.GetToken(), impl_->names);
      message += "there is no \"" + e.GetToken() + "\"";
      message += nearest.empty() ? " here" : "; did you mean \"" + nearest + "\"?";
    } else {
      message += e.GetMsg();
    }
    throw Error(ErrorCode::kConfig, where, message);
  }
}

uint32_t Scope::count(const Formula& formula) const {
  const double found = value(formula);
  if (found >= 0 && found <= INT32_MAX && found == std::floor(found)) return static_cast<uint32_t>(found);
  throw Error(ErrorCode::kConfig, formula.where,
              "formula \"" + formula.text + "\" is " + weights::in_figures(found) +
                  "; expected a whole number from 0 to 2147483647");
}

}  // namespace tenon::family
