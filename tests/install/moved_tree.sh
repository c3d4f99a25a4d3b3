#!/usr/bin/env bash
# moved_tree.sh CMAKE BUILD SOURCE COMPILER: installs the build, moves the tree, and uses it from there, with nothing else of
# Tenon at hand: the program, a plugin of a stranger's, a program that embeds the engine.
set -euo pipefail
cmake=$1 build=$2 source=$3 compiler=$4
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
# Runs in a folder of its own without the caller's environment.
alone() { (cd "$work" && env -i HOME="$work" PATH=/usr/bin:/bin "$@"); }

"$cmake" --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/tenon"
tree=$work/tenon

for file in "$tree"/bin/* $(find "$tree/lib" -name '*.so*' -type f); do
  ! readelf -d "$file" | grep -E 'RUNPATH|RPATH' | grep -v '\[\$ORIGIN' || fail "$file: looks for libraries outside of the tree"
done
! grep -rn -e "$build" -e "$source" -e "$work/first" "$tree/lib/cmake" || fail "a package names a folder of the build"

alone "$tree/bin/tenon" --help | grep -q generate || fail "tenon --help does not name generate"
alone "$tree/bin/tenon" inspect --program synthetic:stories15m >/dev/null
alone "$tree/bin/tenon" generate synthetic:stories15m --prompt "1 2 3" --max-new-tokens 4 >/dev/null

for example in embed plugin; do
  alone "$cmake" -S "$source/examples/$example" -B "$work/$example" -DCMAKE_CXX_COMPILER="$compiler" \
    -DCMAKE_PREFIX_PATH="$tree" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" >"$work/$example.log"
  alone "$cmake" --build "$work/$example" >>"$work/$example.log" || { cat "$work/$example.log" >&2; fail "examples/$example"; }
done
alone "$work/embed/embed" synthetic:stories15m "1 2 3" 4 | tee "$work/embed.out"
grep -q '^4 tokens' "$work/embed.out" || fail "the embedded engine did not make 4 tokens"

# With n = 0 only the likeliest token is left, whatever the seed; the greedy sampler has to agree.
sampled() {
  alone "$tree/bin/tenon" generate synthetic:stories15m --prompt "1 2 3" --max-new-tokens 8 \
    --plugin-dir "$work/plugin/lib/tenon/plugins" --set "sampler.chain=$1"
}
ours=$(sampled '[{use = "top_n_sigma", n = 0}, {use = "categorical"}]')
greedy=$(sampled '[{use = "greedy"}]')
[ -n "$ours" ] && [ "$ours" = "$greedy" ] || fail "top_n_sigma with n = 0 makes \"$ours\", greedy \"$greedy\""
