#!/usr/bin/env bash
# Holds the tree to .clang-format and .clang-tidy, with the versions of Debian 12's clang 16:
#   scripts/lint.sh                    the format of every tracked C, C++ and CUDA file, and clang-tidy over all C and
#                                      C++ but the tests and the examples; CUDA sources are not read by it
#   scripts/lint.sh format [FILE...]   the format alone, of all files or of these, and that intrinsics stand where they
#                                      belong
#   scripts/lint.sh tidy [PATH...]     clang-tidy alone, over these folders or over the sources whose paths begin so:
#                                      apps/
# Before the commit: scripts/lint.sh format, which .pre-commit-config.yaml runs, takes seconds.
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

check_format() {
  if [ $# -eq 0 ]; then
    local files
    mapfile -t files < <(git ls-files '*.c' '*.cc' '*.cu' '*.cuh' '*.h')
    set -- "${files[@]}"
  fi
  printf '%s\0' "$@" | xargs -0 -n 64 -P "$(nproc)" clang-format-16 --dry-run --Werror ||
    fail "the files named above are not formatted: clang-format-16 -i FILE puts them right"
}

# A CPU instruction set has one vocabulary, that of the SDK. The pause of a thread that spins is no vector.
check_intrinsics() {
  if git grep -nE '\b_mm(256|512)?_[a-z]|vector_size|\b__builtin_ia32_' -- core sdk plugins conformance profiler \
    ':!sdk/include/tenon/sdk/cpu' ':!core/src/cpu/thread_team.cc'; then
    fail "the lines above use intrinsics: they belong into a named function of sdk/include/tenon/sdk/cpu"
  fi
}

what=${1:-all}
[ $# -eq 0 ] || shift
case $what in
  all | format | tidy) ;;
  *) fail "scripts/lint.sh [format [FILE...] | tidy [PATH...]]" ;;
esac
command -v clang-format-16 clang-tidy-16 >/dev/null || install_packages test
[ "$what" = tidy ] || { check_format "$@" && check_intrinsics; }
[ "$what" = format ] && exit
[ -e build/release/compile_commands.json ] || configure release
exec python3 scripts/tidy.py build/release "$(nproc)" "$@"
