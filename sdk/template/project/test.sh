#!/usr/bin/env bash
# Builds the plugin, checks it, and makes a few tokens with it: ./test.sh [where Tenon is]
set -euo pipefail
cd "$(dirname "$0")"
prefix=${1:-@PREFIX@}
umask 022  # a library that others may write to is not loaded

cmake -S . -B build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release
cmake --build build
"$prefix/bin/tenon" plugin check build/lib/tenon/plugins/@KIND@/@NAME@.cpu.so
"$prefix/bin/tenon" generate pipeline.toml --plugin-dir build/lib/tenon/plugins --prompt "1 2 3" --max-new-tokens 8
