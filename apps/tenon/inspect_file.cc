#include "inspect_file.h"

#include <cstdio>

#include "command.h"
#include "json_text.h"
#include "report.h"
#include "tenon/core/params.h"
#include "tenon/core/plugin_check.h"
#include "tenon/core/registry.h"

namespace tenon::app {
namespace {

constexpr std::chrono::seconds kLimit{10};

boost::json::object object_of(const LoadedComponent& c) {
  boost::json::array parameters;
  for (size_t i = 0; i < c.schema->count; ++i) {
    const tenon_param_spec spec = spec_at(*c.schema, i);
    parameters.push_back(boost::json::object{{"name", spec.name}, {"description", describe(spec)}, {"doc", spec.doc}});
  }
  return {{"doc", c.doc}, {"vendor", c.vendor},     {"version", c.version},    {"license", c.license},
          {"url", c.url}, {"compiler", c.compiler}, {"parameters", parameters}};
}

void print(const boost::json::object& o) {
  const auto text = [&o](const char* key) { return o.at(key).as_string().c_str(); };
  std::printf("%s\nby %s, version %s, license %s, made with %s\n", text("doc"), text("vendor"), text("version"),
              text("license"), text("compiler"));
  const boost::json::array& parameters = o.at("parameters").as_array();
  std::printf(parameters.empty() ? "no parameters\n" : "parameters\n");
  for (const boost::json::value& p : parameters) {
    std::printf("  %-14s %s\n  %14s %s\n", p.at("name").as_string().c_str(), p.at("description").as_string().c_str(),
                "", p.at("doc").as_string().c_str());
  }
}

int say_why(const std::string& library, const ChildOutcome& outcome) {
  // An exception's text names the library itself.
  const bool threw = outcome.end == ChildOutcome::End::kThrew;
  std::fprintf(stderr, "error: %s%s\n", threw ? "" : (library + ": when it is opened, it ").c_str(),
               outcome.text.c_str());
  return kPlugin;
}

}  // namespace

int print_schema_hash(const std::string& library) {
  const ChildOutcome outcome = run_in_child([&] { return library_schema_hash(library); }, kLimit);
  if (outcome.end != ChildOutcome::End::kReturned) return say_why(library, outcome);
  std::printf("%s\n", outcome.text.c_str());
  return kOk;
}

int inspect_file(const std::string& library, bool json) {
  Registry registry;
  registry.add_library(library.find('/') == std::string::npos ? "./" + library : library);
  const ComponentInfo info = registry.components().front();
  const ChildOutcome outcome = run_in_child(
      [&] { return boost::json::serialize(object_of(registry.load(info.kind, info.name, info.device))); }, kLimit);
  const bool opened = outcome.end == ChildOutcome::End::kReturned;
  if (json) {
    boost::json::object all = {{"kind", info.kind},
                               {"name", info.name},
                               {"device", info.device},
                               {"targets", info.targets},
                               {"library", info.library.string()},
                               {"schema", info.schema_hash},
                               {"layout", info.layout_hash}};
    if (opened) {
      const boost::json::value inside = boost::json::parse(outcome.text);
      for (const auto& [key, value] : inside.as_object()) all[key] = value;
    } else {
      all["error"] = outcome.text;
    }
    std::printf("%s\n", json_text(all).c_str());
  } else {
    std::printf("%s.%s for %s (%s)\n%s\nschema %s, layout %s\n", info.kind.c_str(), info.name.c_str(),
                info.device.c_str(), info.targets.c_str(), info.library.c_str(),
                info.schema_hash.empty() ? "not stated" : info.schema_hash.c_str(), info.layout_hash.c_str());
    if (opened) {
      const boost::json::value inside = boost::json::parse(outcome.text);
      print(inside.as_object());
    }
  }
  return opened ? kOk : say_why(info.library.string(), outcome);
}

}  // namespace tenon::app
