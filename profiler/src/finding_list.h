// This counts all findings and keeps as many as its limit says.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tenon/profiler/trace_check.h"

namespace tenon::profiler {

struct Place {
  uint64_t offset = 0;
  uint64_t line = 1;
};

class FindingList {
 public:
  FindingList(CheckReport& report, size_t max_per_rule) : report_(report), max_per_rule_(max_per_rule) {}

  void loss(std::string_view rule, Place at, std::string_view event, std::string found, std::string right);
  void notice(std::string_view rule, Place at, std::string_view event, std::string found, std::string right);

  // Findings made while an event is read get its name when that is known.
  size_t mark() const noexcept { return report_.findings.size(); }
  void name_since(size_t mark, std::string_view event);

 private:
  void add(Finding finding);

  CheckReport& report_;
  size_t max_per_rule_;
  std::map<std::string, size_t, std::less<>> kept_;
};

}  // namespace tenon::profiler
