// This computes formulas of family files: arithmetic and choices over numbers with names ("local ? window : 0").
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tenon/core/error.h"

namespace tenon::family {

struct Formula {
  std::string text;
  SourcePosition where;  // its first character
};

// This has the names that a formula may use, with their values. One thread uses it.
class Scope {
 public:
  Scope();
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  // Says whether the language of formulas takes the text as a name.
  static bool is_name(const std::string& text);
  void set(const std::string& name, double value);
  const std::vector<std::string>& names() const;
  // Throws Error(kConfig) at the place within the formula that is wrong.
  double value(const Formula& formula) const;
  // Throws Error(kConfig) for anything but a whole number from 0 to 2^31 - 1.
  uint32_t count(const Formula& formula) const;
  bool holds(const Formula& formula) const { return value(formula) != 0; }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenon::family
