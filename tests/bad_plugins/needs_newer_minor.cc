// This plugin needs a minor version of the boundary that no host has yet.
#include "altered.h"

TENON_ALTERED_PLUGIN(it.note.abi_minor = TENON_ABI_MINOR + 3; it.note.needs_minor = TENON_ABI_MINOR + 3;);
