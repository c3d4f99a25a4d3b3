// This reads the metadata section of GGUF.
#pragma once

#include "gguf_cursor.h"
#include "table_weights.h"

namespace tenon::weights {

// An entry stands here in the file, key and all.
struct MetadataPair {
  std::string key;
  uint64_t begin = 0, end = 0;  // bytes from the start of the file
};

struct GgufMetadata {
  MetadataMap values;
  std::vector<MetadataPair> pairs;  // they are in the file's order
};

// Reads the number of entries at the cursor and the entries, and leaves the cursor after them.
GgufMetadata parse_gguf_metadata(GgufCursor& cursor);

}  // namespace tenon::weights
