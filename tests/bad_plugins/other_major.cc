// This plugin was built for another major version of the boundary.
#include "altered.h"

TENON_ALTERED_PLUGIN(it.note.abi_major = TENON_ABI_MAJOR + 1;);
