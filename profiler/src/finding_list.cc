#include "finding_list.h"

namespace tenon::profiler {

void FindingList::add(Finding finding) {
  if (kept_[finding.rule]++ < max_per_rule_) report_.findings.push_back(std::move(finding));
}

void FindingList::loss(std::string_view rule, Place at, std::string_view event, std::string found, std::string right) {
  ++report_.losses;
  add({Severity::kLoss, std::string(rule), at.offset, at.line, std::string(event), std::move(found), std::move(right)});
}

void FindingList::notice(std::string_view rule, Place at, std::string_view event, std::string found,
                         std::string right) {
  ++report_.notices;
  add({Severity::kNotice, std::string(rule), at.offset, at.line, std::string(event), std::move(found),
       std::move(right)});
}

void FindingList::name_since(size_t mark, std::string_view event) {
  for (size_t i = mark; i < report_.findings.size(); ++i) {
    if (report_.findings[i].event.empty()) report_.findings[i].event = event;
  }
}

std::string to_string(const Finding& finding, const std::string& file) {
  std::string text = file + ':' + std::to_string(finding.line) + ": ";
  text += finding.severity == Severity::kLoss ? "loss[" : "notice[";
  text += finding.rule + "]: ";
  if (!finding.event.empty()) text += '"' + finding.event + "\": ";
  return text + finding.found + "; " + finding.right + " (byte " + std::to_string(finding.offset) + ')';
}

}  // namespace tenon::profiler
