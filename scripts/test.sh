#!/usr/bin/env bash
# Installs what is missing, builds everything, and runs every test: scripts/test.sh [ctest options]
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

install_packages build test
scripts/fetch_model.sh
configure release
cmake --build --preset release
exec ctest --preset release --no-tests=error --parallel "$(nproc)" "$@"
