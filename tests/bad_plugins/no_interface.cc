// This plugin has no table when it is asked for one.
#include "altered.h"

TENON_ALTERED_PLUGIN(it.component.interface = [](void*, const char*) -> const void* { return nullptr; };);
