#!/usr/bin/env bash
# What .pre-commit-config.yaml names, as a plain hook of git: ln -s ../../scripts/pre_commit.sh .git/hooks/pre-commit
set -euo pipefail
cd "$(git rev-parse --show-toplevel)"

staged() { git diff --cached --name-only --diff-filter=ACMR -- "$@"; }
mapfile -t sources < <(staged '*.c' '*.cc' '*.cu' '*.cuh' '*.h')
[ ${#sources[@]} -eq 0 ] || scripts/lint.sh format "${sources[@]}"
[ -z "$(staged sdk/include/tenon/abi)" ] || python3 scripts/abi_layout.py --check
[ -z "$(staged '*.md')" ] || python3 tests/docs/check_docs.py .
