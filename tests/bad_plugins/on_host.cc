// This sampler says that it runs on the host under any device: there it would be handed the device's memory.
#include "altered.h"

TENON_ALTERED_PLUGIN(tenon::bad::set_device("host", it););
