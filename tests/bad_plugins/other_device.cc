// This has the same kind and name for another device, with other parameters: the two libraries cannot be one component.
#include "altered.h"

TENON_ALTERED_PLUGIN(tenon::bad::set_device("cuda", it);
                     it.note.schema_hash[0] = it.note.schema_hash[0] == '0' ? '1' : '0';);
