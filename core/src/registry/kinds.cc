// Each kind of component has a row here: its interface, the size of its table, and which functions must be there. A
// note is compared with this host before its library is opened: the version of the ABI, the kind, the device, and a
// hash of the layout of the kind's structs, so that a library of another draft is refused rather than misread.
#include "registry/kinds.h"

#include <algorithm>
#include <cstring>

#include "tenon/abi/grammar.h"
#include "tenon/core/error.h"
#include "tenon/core/registry.h"
#include "tenon/sdk/layout.h"

namespace tenon {
namespace {

using Missing = std::vector<std::string>;

struct Wanted {
  const char* name;
  bool there;
};
Missing missing_of(std::initializer_list<Wanted> wanted) {
  Missing missing;
  for (const Wanted& w : wanted) {
    if (!w.there) missing.emplace_back(w.name);
  }
  return missing;
}
#define TENON_HAS(field)       \
  Wanted {                     \
    #field, t.field != nullptr \
  }

Missing missing(const tenon_device& t) {
  Missing m = missing_of({TENON_HAS(alloc), TENON_HAS(release), TENON_HAS(copy), TENON_HAS(record_step_op)});
  if (t.flags & TENON_DEVICE_WALKS) return m;
  const Missing queues = missing_of({TENON_HAS(queue), TENON_HAS(wait), TENON_HAS(capture_begin),
                                     TENON_HAS(capture_end), TENON_HAS(replay), TENON_HAS(graph_release)});
  m.insert(m.end(), queues.begin(), queues.end());
  return m;
}
Missing missing(const tenon_quantization& t) {
  return missing_of(
      {TENON_HAS(claim), TENON_HAS(bind), TENON_HAS(footprint), TENON_HAS(load), TENON_HAS(unbind), TENON_HAS(record)});
}
Missing missing(const tenon_kv_cache& t) {
  return missing_of({TENON_HAS(claim), TENON_HAS(plan), TENON_HAS(attach), TENON_HAS(view), TENON_HAS(record_append),
                     TENON_HAS(record_dequant), TENON_HAS(record_commit), TENON_HAS(reserve), TENON_HAS(fork),
                     TENON_HAS(truncate), TENON_HAS(publish), TENON_HAS(export_sequence), TENON_HAS(import_sequence),
                     TENON_HAS(used_bytes)});
}
Missing missing(const tenon_attention& t) {
  return missing_of({TENON_HAS(claim), TENON_HAS(record), TENON_HAS(preferred_format)});
}
Missing missing(const tenon_sampler& t) {
  const Wanted record = t.is_selector != 0 ? TENON_HAS(record_select) : TENON_HAS(record_apply);
  return missing_of({TENON_HAS(state_bytes), TENON_HAS(encode), record});
}
Missing missing(const tenon_draft& t) {
  return missing_of({TENON_HAS(max_tokens), TENON_HAS(propose)});
}
Missing missing(const tenon_grammar& t) {
  return missing_of({TENON_HAS(prepare), TENON_HAS(compile), TENON_HAS(release), TENON_HAS(start), TENON_HAS(stop),
                     TENON_HAS(accept), TENON_HAS(mask)});
}
Missing missing(const tenon_small_op& t) {
  return missing_of({Wanted{"id", t.id != 0}, TENON_HAS(columns), TENON_HAS(record)});
}
Missing missing(const tenon_scheduler& t) {
  return missing_of({TENON_HAS(sequences), TENON_HAS(next), TENON_HAS(no_space)});
}
#undef TENON_HAS

template <class Table>
Missing missing_in(const void* table) {
  return missing(*static_cast<const Table*>(table));
}

struct Kind {
  const char* name;
  size_t table_size;
  Missing (*missing)(const void*);
};
constexpr Kind kKinds[] = {
    {"attention", sizeof(tenon_attention), &missing_in<tenon_attention>},
    {"device", sizeof(tenon_device), &missing_in<tenon_device>},
    {"draft", sizeof(tenon_draft), &missing_in<tenon_draft>},
    {"grammar", sizeof(tenon_grammar), &missing_in<tenon_grammar>},
    {"kv_cache", sizeof(tenon_kv_cache), &missing_in<tenon_kv_cache>},
    {"op", sizeof(tenon_small_op), &missing_in<tenon_small_op>},
    {"quantization", sizeof(tenon_quantization), &missing_in<tenon_quantization>},
    {"sampler", sizeof(tenon_sampler), &missing_in<tenon_sampler>},
    {"scheduler", sizeof(tenon_scheduler), &missing_in<tenon_scheduler>},
};

const Kind* find(std::string_view kind) {
  const auto* const end = std::end(kKinds);
  const auto* const it = std::find_if(std::begin(kKinds), end, [&](const Kind& k) { return k.name == kind; });
  return it == end ? nullptr : it;
}

std::string version(unsigned major, unsigned minor) {
  return std::to_string(major) + '.' + std::to_string(minor);
}

}  // namespace

const std::vector<std::string>& plugin_kinds() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Kind& k : kKinds) names.emplace_back(k.name);
    return names;
  }();
  return kNames;
}

bool is_plugin_kind(std::string_view kind) {
  return find(kind) != nullptr;
}
std::string interface_id(std::string_view kind) {
  return std::string(kind) + "/1";
}
size_t table_size(std::string_view kind) {
  return find(kind)->table_size;
}

std::vector<std::string> missing_functions(std::string_view kind, const void* table) {
  return find(kind)->missing(table);
}

std::string compatibility_problem(const tenon_note& note) {
  const std::string host = version(TENON_ABI_MAJOR, TENON_ABI_MINOR);
  if (note.abi_major != TENON_ABI_MAJOR) {
    return "was built for plugin ABI " + version(note.abi_major, note.abi_minor) + "; this host has " + host;
  }
  if (note.needs_minor > TENON_ABI_MINOR) {
    return "needs plugin ABI " + version(note.abi_major, note.needs_minor) + " or later; this host has " + host;
  }
  if (!is_plugin_kind(note.kind)) {
    const std::string near = nearest_name(note.kind, plugin_kinds());
    std::string text = std::string("is of the kind \"") + note.kind + "\", which this host does not know";
    if (!near.empty()) text += "; did it mean \"" + near + "\"?";
    text += " kinds:";
    for (const std::string& kind : plugin_kinds()) text += (kind == plugin_kinds().front() ? " " : ", ") + kind;
    return text;
  }
  const std::string_view kind = note.kind;
  const bool host_only = kind == "scheduler" || kind == "grammar";
  if (host_only && note.device != kHostDevice) {
    return std::string("is a ") + note.kind + " for the device \"" + note.device + "\"; a " + note.kind +
           " states \"host\"";
  }
  if (note.device == kHostDevice && kind != "draft" && !host_only) {
    return std::string("is for the device \"host\", which stands for any; a ") + note.kind +
           " states the one that it runs on, \"cpu\" or \"cuda\"";
  }
  const char* const layout = sdk::layout::of(note.kind);
  if (std::strcmp(layout, note.layout_hash) != 0) {
    return "was built against another draft of " + interface_id(note.kind) + " (its layout is " + note.layout_hash +
           ", this host's " + layout + "): rebuild it with this SDK";
  }
  return "";
}

}  // namespace tenon
