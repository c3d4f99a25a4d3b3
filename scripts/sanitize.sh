#!/usr/bin/env bash
# Builds with sanitizers and runs the whole suite under them, with asan also fuzzing's fixed share, or the tests of some
# folders:
#   scripts/sanitize.sh [asan] [tsan] [tests/FOLDER...] [ctest options]
#                                      e.g. scripts/sanitize.sh asan tests/fuzz tests/unit/file
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

install_packages build test
scripts/fetch_model.sh
scripts/fetch_xgrammar.sh || say "Structured output is left out."
presets=()
while [[ ${1:-} =~ ^[at]san$ ]]; do
  presets+=("$1")
  shift
done
[ ${#presets[@]} -gt 0 ] || presets=(asan tsan)
targets=() labels=
while [[ ${1:-} = tests/* ]]; do
  targets+=("${1%/}/all")
  labels+="|${1#tests/}"
  shift
done
[ -z "$labels" ] || set -- --label-regex "^(${labels#|})(/|\$)" "$@"
for preset in "${presets[@]}"; do
  configure "$preset"
  cmake --build --preset "$preset" ${targets[0]:+--target "${targets[@]}"}
  ctest --preset "$preset" --no-tests=error --parallel "$(nproc)" "$@"
done
