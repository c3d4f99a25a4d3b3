// This is the command `tenon tune`.
#pragma once

#include "command.h"

namespace tenon::app {

Run add_tune(CLI::App& app);

}  // namespace tenon::app
