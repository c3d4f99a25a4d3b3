#!/usr/bin/env bash
# moved_tree.sh CMAKE BUILD SOURCE COMPILER: installs the build, moves the tree, and uses it from there, with nothing
# else of Tenon at hand: the program, a plugin of a stranger's, a program that embeds the engine.
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

for folder in examples/embed examples/plugin tests/packed_format; do
  example=$(basename "$folder")
  alone "$cmake" -S "$source/$folder" -B "$work/$example" -DCMAKE_CXX_COMPILER="$compiler" \
    -DCMAKE_PREFIX_PATH="$tree" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" >"$work/$example.log"
  alone "$cmake" --build "$work/$example" >>"$work/$example.log" || { cat "$work/$example.log" >&2; fail "$folder"; }
done
alone "$tree/bin/tenon" generate synthetic:stories15m --prompt "1 2 3" --max-new-tokens 4 \
  --plugin-dir "$work/packed_format/plugins" --set quantization.use=acme.two_bits >/dev/null || fail "a stranger's packed format"
alone "$work/embed/embed" synthetic:stories15m "1 2 3" 4 | tee "$work/embed.out"
grep -q '^4 tokens' "$work/embed.out" || fail "the embedded engine did not make 4 tokens"
grep -q '^request 1: 4 tokens, ended by length' "$work/embed.out" || fail "of two requests the first did not make 4 tokens"
grep -q '^request 2: .* ended by cancelled' "$work/embed.out" || fail "of two requests the second was not cancelled"

# With n = 0 only the likeliest token is left, whatever the seed; the greedy sampler has to agree.
sampled() {
  alone "$tree/bin/tenon" generate synthetic:stories15m --prompt "1 2 3" --max-new-tokens 8 \
    --plugin-dir "$work/plugin/lib/tenon/plugins" --set "sampler.chain=$1"
}
ours=$(sampled '[{use = "top_n_sigma", n = 0}, {use = "categorical"}]')
greedy=$(sampled '[{use = "greedy"}]')
[ -n "$ours" ] && [ "$ours" = "$greedy" ] || fail "top_n_sigma with n = 0 makes \"$ours\", greedy \"$greedy\""

# The installed program runs the ops of a plugin, and says what it did not test.
check() { alone "$tree/bin/tenon" plugin check --conformance-limit "$1" "$2"; }
summary() { sed -n 's/^.*\.so: //p'; }
reference=$(check 300 "$tree/lib/tenon/plugins/attention/reference.cpu.so" | summary)
[[ $reference == *" passed; 1 not tested: parameters.bounds (it has no parameters)" ]] || fail "attention/reference: $reference"
# fails_only CHECK MESSAGE PLUGIN: it fails this check with this message and no other.
fails_only() {
  local library=$build/tests/bad_plugins/$3/$3.cpu.so status=0 out
  out=$(check "${4:-300}" "$library") || status=$?
  [ "$status" = 4 ] || fail "$3: exit code $status"
  [[ $(summary <<<"$out") == "1 failed: $1; "* ]] || fail "$3: $(summary <<<"$out")"
  grep -qE "^$1 +FAILED +.*$2" <<<"$out" || fail "$3: $(grep FAILED <<<"$out")"
}
fails_only conformance.bounds "wrote before the start of tensor" overruns_attention
fails_only conformance.bounds "wrote past the end of step/next" overruns_sampler
fails_only conformance.float64 "off by" own_formula_undeclared
own=$(check 300 "$build/tests/bad_plugins/own_formula/own_formula.cpu.so" | summary)
[[ $own == *" passed; "*" not tested: "*"conformance.float64 (it declares a formula of its own)"* ]] || fail "own_formula: $own"
fails_only conformance.candidates "chooses token|likelier" reads_stale_scratch
fails_only conformance.bounds "gave no answer within 3 s" hangs_in_op 3
# What was killed may take a moment to be gone where the machine is busy.
for ((i = 0; i < 100; ++i)); do
  grep -sqx tenon_lingers /proc/[0-9]*/comm || break
  sleep 0.1
done
[ "$i" -lt 100 ] || fail "hangs_in_op: what it started goes on"
# What is for a GPU is checked as far as there is one; else the report says so by name.
for library in "$tree"/lib/tenon/plugins/attention/flash.cuda.so; do
  [ -e "$library" ] || continue
  said=$(check 300 "$library" | summary)
  [ -e /dev/nvidia0 ] || [[ $said == *" not tested: "*"conformance.bounds (there is no device cuda here: "* ]] ||
    fail "$library: $said"
done
