#include "altered.h"

TENON_ALTERED_PLUGIN(it.component.interface = [](void*, const char*) -> const void* { return nullptr; };);
