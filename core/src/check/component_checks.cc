// These checks open a library, and follow the life of its instances: they are made twice and side by side, without
// memory, at the ends of every parameter, and asked for interfaces that do not exist. Each names the checks that must
// have passed before it. Invariant of all: what create() refuses leaves no instance and no memory, and has a reason.
#include <limits>

#include "check/bench.h"
#include "check/checks.h"
#include "tenon/core/error.h"
#include "tenon/core/registry.h"

namespace tenon {
namespace {

void open(const Subject& s) {
  const Library library(s.library, s.note);
}

void texts(const Subject& s) {
  const Library library(s.library, s.note);
  const auto blank = [](const char* text) { return text == nullptr || *text == '\0'; };
  if (blank(library.component().doc)) fail_check("the component has no documentation");
  for (const auto& [name, text] : {std::pair{"vendor", library.plugin().vendor},
                                   {"version", library.plugin().version},
                                   {"license", library.plugin().license},
                                   {"compiler", library.plugin().compiler}}) {
    if (blank(text)) fail_check(std::string("the plugin does not state its ") + name);
  }
  const tenon_param_schema& schema = *library.component().schema;
  for (size_t i = 0; i < schema.count; ++i) {
    if (blank(schema.spec[i]->doc)) fail_check(std::string("no documentation of \"") + schema.spec[i]->name + '"');
  }
}

void create_twice(const Subject& s) {
  const Bench bench(s);
  for (int round = 0; round < 2; ++round) {
    if (!bench.create(bench.values())) fail_check("was not created");
  }
}

void two_instances(const Subject& s) {
  const Bench bench(s);
  Instance first = bench.create(bench.values());
  const Instance second = bench.create(bench.values());
  first = Instance();
  const Instance third = bench.create(bench.values());
}

// Returns whether so many pieces of the host's memory were enough to create the component.
bool create_with(Bench& bench, uint64_t pieces, bool with_reason) {
  void* self = nullptr;
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  const ParamValues values = bench.values();
  bench.give_memory(pieces);
  tenon_status status = TENON_ERROR;
  try {
    status = bench.component().create(values.abi(), &bench.env(), &self, with_reason ? &why : nullptr);
  } catch (...) {
    fail_check("create lets an exception out when the host has no memory");
  }
  const bool enough = !bench.refused_memory();
  if (status == TENON_OK) {
    bench.component().destroy(self);
  } else {
    if (with_reason && *text == '\0') fail_check("create failed without memory and did not say why");
    if (self != nullptr) fail_check("create failed and left an instance");
  }
  if (const size_t kept = bench.memory_in_use(); kept > 0) {
    fail_check((status == TENON_OK ? "destroy" : "a create that fails") +
               std::string(" does not give back all of the host's memory; pieces left: ") + std::to_string(kept));
  }
  bench.give_memory(UINT64_MAX);
  return enough;
}

// Lets the host's memory run out at every place that asks for some.
void failed_create(const Subject& s) {
  constexpr uint64_t kMost = 1000;
  Bench bench(s);
  // No room for a reason is no reason to fail in another way.
  for (const bool with_reason : {true, false}) {
    uint64_t pieces = 0;
    while (!create_with(bench, pieces, with_reason) && pieces < kMost) ++pieces;
  }
  const Instance after = bench.create(bench.values());
}

// Returns the ends of the range and all choices; what is unbounded has no end to try.
std::vector<ParamValue> bounds_of(const tenon_param_spec& spec) {
  std::vector<ParamValue> bounds;
  for (const std::string& choice : choices_of(spec)) {
    bounds.push_back(spec.type == TENON_PARAM_INT ? ParamValue(int64_t{std::stoll(choice)}) : ParamValue(choice));
  }
  if (!bounds.empty()) return bounds;
  if (spec.type == TENON_PARAM_BOOL) return {false, true};
  if (spec.type == TENON_PARAM_INT) {
    if (spec.int_min != std::numeric_limits<int64_t>::min()) bounds.emplace_back(spec.int_min);
    if (spec.int_max != std::numeric_limits<int64_t>::max()) bounds.emplace_back(spec.int_max);
  }
  if (spec.type == TENON_PARAM_REAL) {
    if (spec.real_min != -std::numeric_limits<double>::max()) bounds.emplace_back(spec.real_min);
    if (spec.real_max != std::numeric_limits<double>::max()) bounds.emplace_back(spec.real_max);
  }
  return bounds;
}

// Creates the component with one parameter at a value; returns "", or why that failed.
std::string problem_with(const Bench& bench, ParamValues values, size_t i, const ParamValue& value) {
  if (std::string problem = values.set(i, value); !problem.empty()) return problem;
  void* self = nullptr;
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (bench.component().create(values.abi(), &bench.env(), &self, &why) == TENON_OK) {
    bench.component().destroy(self);
    return "";
  }
  return *text == '\0' ? "no reason given" : text;
}

// A value may not go with the defaults of the others (a least above its most); then it must go with their ends.
void bounds(const Subject& s) {
  const Bench bench(s);
  const tenon_param_schema& schema = *bench.component().schema;
  if (schema.count == 0) throw NotTested("it has no parameters");
  ParamValues lowest = bench.values(), highest = bench.values();
  for (size_t i = 0; i < schema.count; ++i) {
    const std::vector<ParamValue> ends = bounds_of(spec_at(schema, i));
    if (ends.empty()) continue;
    lowest.set(i, ends.front());
    highest.set(i, ends.back());
  }
  for (size_t i = 0; i < schema.count; ++i) {
    for (const ParamValue& value : bounds_of(spec_at(schema, i))) {
      const std::string problem = problem_with(bench, bench.values(), i, value);
      if (problem.empty() || problem_with(bench, lowest, i, value).empty() ||
          problem_with(bench, highest, i, value).empty()) {
        continue;
      }
      fail_check(std::string("fails at a value of \"") + schema.spec[i]->name + "\" that its schema allows (" +
                 describe(spec_at(schema, i)) + "): " + problem);
    }
  }
}

void unknown_interface(const Subject& s) {
  const Bench bench(s);
  const Instance instance = bench.create(bench.values());
  for (const char* id : {"", "none/1", "sampler/999"}) {
    if (bench.component().interface(instance.self(), id) != nullptr) {
      fail_check(std::string("claims to have the interface \"") + id + '"');
    }
  }
}

void struct_sizes(const Subject& s) {
  check_struct_sizes(s);
}

void kind(const Subject& s) {
  check_kind(s);
}

}  // namespace

const std::vector<Check>& component_checks() {
  static const std::vector<Check> kChecks = {{"loading.open", {"binary.symbol", "descriptor.note"}, &open},
                                             {"descriptor.texts", {"loading.open"}, &texts},
                                             {"lifecycle.create_destroy", {"loading.open"}, &create_twice},
                                             {"lifecycle.two_instances", {"lifecycle.create_destroy"}, &two_instances},
                                             {"lifecycle.failed_create", {"lifecycle.create_destroy"}, &failed_create},
                                             {"parameters.bounds", {"lifecycle.create_destroy"}, &bounds},
                                             {"interface.unknown_id", {"lifecycle.create_destroy"}, &unknown_interface},
                                             {"interface.struct_sizes", {"lifecycle.create_destroy"}, &struct_sizes},
                                             {"interface.corners", {"lifecycle.create_destroy"}, &kind}};
  return kChecks;
}

}  // namespace tenon
