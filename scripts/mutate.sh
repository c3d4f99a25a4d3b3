#!/usr/bin/env bash
# Makes the mistakes of tests/mutants one at a time and sees whether the tests that should notice them do:
#   scripts/mutate.sh [MUTANT...]      all of them without a name
# Works in a tree of its own, build/mutate or $TENON_MUTATE_DIR, with what is committed or changed here; files that git
# does not track are not in it. On demand only: every mutant is a build and a run of tests.
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

here=$PWD
mutants=(python3 "$here/tests/mutants/mutants.py")
names=$("${mutants[@]}" list "$@") || exit 1
tree=${TENON_MUTATE_DIR:-build/mutate}
mkdir -p "$(dirname "$tree")"
tree=$(realpath -m "$tree")
log=$tree.log
jobs=${TENON_MUTATE_JOBS:-$(nproc)}

commit=$(git stash create)
commit=${commit:-$(git rev-parse HEAD)}
if [ -e "$tree/.git" ]; then
  git -C "$tree" checkout --quiet --force --detach "$commit"
else
  git worktree prune
  git worktree add --quiet --force --detach "$tree" "$commit"
fi
mkdir -p "$tree/build"
for shared in build/python models; do
  if [ -e "$shared" ] && [ ! -e "$tree/$shared" ]; then ln -s "$(realpath "$shared")" "$tree/$shared"; fi
done
cd "$tree"
[ -e build/release/CMakeCache.txt ] || configure release -DTENON_CUDA=OFF -DTENON_TEST_CASES=ON >"$log" 2>&1 || fail "the tree could not be configured: $log"

build() { cmake --build build/release -j "$jobs" --target "$@"; }
run_tests() {
  ctest --test-dir build/release --no-tests=error --parallel "$jobs" --timeout 300 --tests-regex "$1" --exclude-regex '_NOT_BUILT$'
}

# Without a mistake everything passes; else a mutant that fails would say nothing.
targets=$(for name in $names; do "${mutants[@]}" show "$name" targets; done | tr ' ' '\n' | sort -u)
every=$(for name in $names; do "${mutants[@]}" show "$name" tests; done | sort -u | paste -sd '|')
say "Building what $(wc -w <<<"$names") mutants need (log: $log)"
# shellcheck disable=SC2086 # one word a target
build $targets >"$log" 2>&1 || fail "the tree does not build without a mutant: $log"
run_tests "$every" >"$log" 2>&1 || fail "the tests do not pass without a mutant: $log"

bad=() caught=0
for name in $names; do
  target=$("${mutants[@]}" show "$name" targets)
  file=$("${mutants[@]}" show "$name" file)
  begin=$SECONDS
  verdict="caught"
  # shellcheck disable=SC2086 # one word a target
  if ! "${mutants[@]}" apply "$tree" "$name" >"$log" 2>&1; then
    verdict="does not apply"
  elif ! build $target >"$log" 2>&1; then
    verdict="does not build"
  elif run_tests "$("${mutants[@]}" show "$name" tests)" >"$log" 2>&1; then
    verdict="NOT CAUGHT"
  elif ! grep -q '^The following tests FAILED' "$log"; then
    verdict="has no tests"
  fi
  # Written anew, so that the next build takes the mistake out again.
  git show "$commit:$file" >"$file"
  detail=
  if [ "$verdict" = caught ]; then
    caught=$((caught + 1))
    detail=$(sed -n '/^The following tests FAILED/{n;s/^[^-]*- //;s/ .*//;p}' "$log")
  else
    bad+=("$name: $verdict")
    cp "$log" "$log.$name"
  fi
  printf '%-16s %-44s %4d s  %s\n' "$verdict" "$name" "$((SECONDS - begin))" "$detail"
done
say "$caught of $(wc -w <<<"$names") mutants are caught" "${bad[@]}"
[ ${#bad[@]} -eq 0 ]
