#!/usr/bin/env bash
# From a bare Debian 12 to generated text and a trace of it: scripts/demo.sh ["prompt"]
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

install_packages build
scripts/fetch_model.sh
configure release
say "Building"
cmake --build --preset release --target core/all plugins/all apps/all configs/all >&2
