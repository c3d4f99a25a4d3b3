// The input is a pipeline file, and options after it: each line that a line of "--set" announces is one. What resolves
// is printed and must read back as the same.
#include <cstdlib>

#include "../unit/config/fake_schemas.h"
#include "tenon/core/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static tenon::FakeSchemas schemas;
  schemas.asked_devices.clear();
  std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> set;
  for (size_t at; (at = text.rfind("\n--set ")) != std::string::npos; text.resize(at))
    set.push_back(text.substr(at + 7));
  try {
    const auto document = tenon::parse_config({{"default.toml", tenon::kTestDefaults}, {"p.toml", text}}, set, "m");
    document.plugins();
    const std::string printed = tenon::to_toml(tenon::resolve(document, schemas));
    const auto again = tenon::resolve(tenon::parse_config({{"printed", printed}}, {}), schemas);
    if (tenon::to_toml(again) != printed) std::abort();
  } catch (const tenon::Error& e) {
    // There is an error only where the input, not what was made of it, is at fault.
    if (e.diagnostics().empty() || e.diagnostics().front().where.file == "printed") std::abort();
  }
  return 0;
}
