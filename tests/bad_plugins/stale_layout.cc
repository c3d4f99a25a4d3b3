// This plugin's note says that its structs lie differently.
#include "altered.h"

TENON_ALTERED_PLUGIN(it.note.layout_hash[0] = it.note.layout_hash[0] == '0' ? '1' : '0';);
