// These are the sections of a pipeline file. Validation, printing and the reference all read these tables.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tenon/abi/params.h"

namespace tenon::config {

// This is a key that holds no plain value.
struct StructuredKey {
  const char* name;
  const char* form;  // "an array of tables"
  const char* doc;
};

struct Section {
  const char* name;
  const char* kind;  // the kind of component that `use` names; "" = it names none
  const char* doc;   // paragraphs of Markdown for the reference
  const tenon_param_schema* keys;
  std::vector<StructuredKey> structured;
};

// The sections stand in the order in which they are printed; [[plugin]] is the first.
std::span<const Section> sections();
const Section& section(const std::string& name);  // must exist
const Section* find_section(const std::string& name);

// An element of quantization.override, or of sampler.chain, has these keys beside the component's own parameters.
const tenon_param_schema& override_keys();
const tenon_param_schema& component_keys();

// Returns whether the section itself has that key, and not its component.
bool is_own_key(const Section& section, const std::string& key);

// Returns the keys of draft.pipeline itself, and the sections that it may have.
const tenon_param_schema& draft_pipeline_keys();
inline constexpr const char* kDraftSections[] = {"model", "quantization", "kv_cache", "attention"};

inline constexpr const char* kNoDraft = "none";
inline constexpr const char* kNoGrammar = "none";

}  // namespace tenon::config
