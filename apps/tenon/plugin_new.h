// `tenon plugin new` writes a project to start a plugin from.
#pragma once

#include "command.h"

namespace tenon::app {

Run add_plugin_new(CLI::App& plugin);

}  // namespace tenon::app
