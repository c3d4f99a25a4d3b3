// The metadata section of GGUF.
#pragma once

#include "gguf_cursor.h"
#include "table_weights.h"

namespace tenon::weights {

// Reads the number of entries at the cursor and the entries, and leaves the cursor behind them.
MetadataMap parse_gguf_metadata(GgufCursor& cursor);

}  // namespace tenon::weights
