// This plugin's note promises other parameters than its table has.
#include "altered.h"

TENON_ALTERED_PLUGIN(it.note.schema_hash[0] = it.note.schema_hash[0] == '0' ? '1' : '0';);
