#!/usr/bin/env bash
# strangers.sh PART CMAKE BUILD SOURCE: plugins that strangers write with nothing but an installed Tenon.
#   c      the example in C11, with CMake and without
#   rust   the example in Rust; 77 where there is no rustc
#   new    projects that `tenon plugin new` writes
set -euo pipefail
part=$1 cmake=$2 build=$3 source=$4
umask 022
if [ "$part" = rust ] && ! command -v rustc >/dev/null; then
  echo "no rustc was found (Debian: rustc)"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
"$cmake" --install "$build" --prefix "$work/tenon" >"$work/install.log"
tenon=$work/tenon/bin/tenon plugins=$work/plugins/sampler
mkdir -p "$plugins"

check() { "$tenon" plugin check "$@" || fail "$*"; }
# Ten tokens of a model with made-up weights.
tokens() {
  "$tenon" -q generate synthetic:stories15m --plugin-dir "$work/plugins" --prompt "1 2 3 4 1 2 3 4" --max-new-tokens 10 \
    --set quantization.use=none "$@"
}
same() { [ -n "$1" ] && [ "$1" = "$2" ] || fail "$3: \"$1\" and \"$2\""; }
differ() { [ -n "$1" ] && [ "$1" != "$2" ] || fail "$3: both \"$1\""; }
drawn='sampler.select=categorical'

case $part in
  c)
    cc -std=c11 -O2 -Wall -Wextra -Wpedantic -Werror -fPIC -shared -fvisibility=hidden -ffp-contract=off -I"$work/tenon/include" \
      "$source/examples/c/typical.c" -lm -o "$plugins/acme.typical.cpu.so"
    check "$plugins/acme.typical.cpu.so"
    "$tenon" inspect sampler.acme.typical --plugin-dir "$work/plugins" | grep -q 'real: 0.01 to 1; default 0.95' ||
      fail "inspect does not show the parameter"
    # A note may state the schema's hash, and then it has to be right.
    hash=$("$tenon" inspect --schema-hash "$plugins/acme.typical.cpu.so")
    for stated in "$hash" 0123456789abcdef; do
      mkdir -p "$work/$stated"
      cc -std=c11 -O2 -fPIC -shared -fvisibility=hidden -I"$work/tenon/include" "-DTENON_PLUGIN_SCHEMA_HASH=\"$stated\"" \
        "$source/examples/c/typical.c" -lm -o "$work/$stated/acme.typical.cpu.so"
    done
    check "$work/$hash/acme.typical.cpu.so"
    ! "$tenon" plugin check --skip conformance "$work/0123456789abcdef/acme.typical.cpu.so" >"$work/wrong" || fail "a wrong hash passes"
    grep -q "loading.open .*FAILED .*$hash" "$work/wrong" || fail "the right hash is not named"

    plain=$(tokens --set 'sampler.chain=[]' --set $drawn)
    same "$plain" "$(tokens --set 'sampler.chain=[{use = "acme.typical", p = 1}]' --set $drawn)" "p = 1 changes the text"
    differ "$plain" "$(tokens --set 'sampler.chain=[{use = "acme.typical", p = 0.01}]' --set $drawn)" "p = 0.01 changes nothing"
    "$cmake" -S "$source/examples/c" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/tenon" >"$work/log" 2>&1 &&
      "$cmake" --build "$work/build" >>"$work/log" 2>&1 || { cat "$work/log"; fail "examples/c does not build"; }
    check "$work/build/lib/tenon/plugins/sampler/acme.typical.cpu.so"
    ;;
  rust)
    TENON_INCLUDE=$work/tenon/include rustc --edition 2021 --crate-type cdylib -O -C panic=abort -C strip=symbols -D warnings \
      "$source/examples/rust/mirostat.rs" -o "$plugins/acme.mirostat.cpu.so"
    check "$plugins/acme.mirostat.cpu.so"
    mirostat() { tokens --set 'sampler.chain=[]' --set "sampler.select={use = \"acme.mirostat\", $1}" "${@:2}"; }
    greedy=$(tokens --set 'sampler.chain=[]' --set sampler.select=greedy)
    same "$greedy" "$(mirostat 'tau = 0.001, eta = 0')" "with next to no surprise it is not greedy"
    differ "$(mirostat 'tau = 2, eta = 0')" "$(mirostat 'tau = 2, eta = 1')" "the limit does not move"
    # Its state moves by what verification keeps, so drafts change nothing.
    for tau in 2 8; do
      same "$(mirostat "tau = $tau, eta = 1")" "$(mirostat "tau = $tau, eta = 1" --set draft.use=ngram)" "drafts change the text"
    done
    ;;
  new)
    make() { # KIND NAME [--c]
      "$tenon" plugin new --kind "$1" --name "$2" "${@:3}" "$work/new/$2"
      CMAKE_GENERATOR="Unix Makefiles" "$work/new/$2/test.sh" "$work/tenon" >"$work/new/$2.log" 2>&1 ||
        { cat "$work/new/$2.log"; fail "a new $1 does not build, check or run"; }
    }
    mkdir -p "$work/new"
    make sampler acme.no_token
    make sampler plain_c --c
    make draft again
    make quantization acme.exact
    "$tenon" inspect sampler.plain_c --plugin-dir "$work/new/plain_c/build/lib/tenon/plugins" | grep -q 'One token is never chosen' ||
      fail "inspect does not know the new sampler"
    ! "$tenon" plugin new --kind sampler --name again "$work/new/again" 2>"$work/error" || fail "it overwrites"
    grep -q 'is there already; --force replaces it' "$work/error" || fail "no reason for not overwriting"
    ! "$tenon" plugin new --kind sampler --name Bad.Name "$work/new/bad" 2>"$work/error" || fail "takes a wrong name"
    ! "$tenon" plugin new --kind nothing --name x "$work/new/bad" 2>"$work/error" || fail "takes a wrong kind"
    grep -q 'kinds: attention, draft, ' "$work/error" || fail "does not list the kinds"
    ;;
esac
