#include <cstring>

#include "fault.h"
#include "registry/kinds.h"
#include "tenon/core/registry.h"

namespace tenon {
namespace {

std::string where(const LoadedComponent& c) {
  const std::string id = c.info.kind + '.' + c.info.name;
  return c.info.library.empty() ? id : id + " (" + c.info.library.string() + ')';
}

[[noreturn]] void fail(const LoadedComponent& c, const std::string& why, ErrorCode code = ErrorCode::kPlugin) {
  throw Error(code, where(c) + ": " + why);
}

// Returns the component's table, widened to what this host knows.
std::shared_ptr<const void> table_of(const LoadedComponent& c, void* self) {
  const std::string id = interface_id(c.info.kind);
  const void* raw = nullptr;
  try {
    raw = c.component->interface(self, id.c_str());
  } catch (...) {
    fail(c, "interface() let an exception out");
  }
  if (raw == nullptr) fail(c, "has no interface \"" + id + '"');
  tenon_head head;
  std::memcpy(&head, raw, sizeof(head));
  if (head.size < sizeof(head) || head.major != 1) {
    fail(c, "its interface \"" + id + "\" is of version " + std::to_string(head.major) + ", not 1");
  }
  const size_t size = table_size(c.info.kind);
  std::shared_ptr<std::byte> copy(new std::byte[size](), std::default_delete<std::byte[]>());
  std::memcpy(copy.get(), raw, std::min<size_t>(head.size, size));
  std::string missing;
  for (const std::string& name : missing_functions(c.info.kind, copy.get())) {
    missing += (missing.empty() ? "\"" : ", \"") + name + '"';
  }
  if (!missing.empty())
    fail(c, "its interface \"" + id + "\" lacks what every " + c.info.kind + " must have: " + missing);
  return copy;
}

}  // namespace

Instance::Instance(const LoadedComponent& component, const tenon_params& params, const tenon_env& env) {
  if (component.component == nullptr) fail(component, "is part of the host and has no instances");
  id_ = component.info.kind + '.' + component.info.name;
  const fault::InComponent in(id_.c_str(), "create");
  char text[1024] = "";
  tenon_reason why{text, sizeof(text)};
  void* self = nullptr;
  tenon_status status = TENON_ERROR;
  try {
    status = component.component->create(&params, &env, &self, &why);
  } catch (...) {
    fail(component, "create() let an exception out");
  }
  text[sizeof(text) - 1] = '\0';
  if (status != TENON_OK) {
    fail(component, *text == '\0' ? "cannot be created, and does not say why" : text,
         status == TENON_NO_SPACE ? ErrorCode::kMemory : ErrorCode::kPlugin);
  }
  component_ = &component;
  self_ = self;
  try {
    table_ = table_of(component, self);
  } catch (...) {
    component.component->destroy(self);
    throw;
  }
}

Instance::~Instance() {
  if (component_ == nullptr) return;
  const fault::InComponent in(id_.c_str(), "destroy");
  component_->component->destroy(self_);
}

Instance::Instance(Instance&& other) noexcept {
  *this = std::move(other);
}

Instance& Instance::operator=(Instance&& other) noexcept {
  std::swap(component_, other.component_);
  std::swap(self_, other.self_);
  std::swap(id_, other.id_);
  std::swap(table_, other.table_);
  return *this;
}

}  // namespace tenon
