#!/usr/bin/env bash
# templates.sh TENON PLUGINS: the plugins of sdk/template, in PLUGINS/<kind>/.
set -euo pipefail
tenon=$1 plugins=$2
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
for library in "$plugins"/*/*.so; do "$tenon" plugin check "$library"; done

# Ten greedy tokens of a model with made-up weights, written <1><2>...
tokens() {
  "$tenon" -q generate synthetic:stories15m --plugin-dir "$plugins" --prompt "1 2 3 4" --max-new-tokens 10 \
    --set sampler.chain=[] --set sampler.select=greedy --set quantization.use=none "$@"
}
shipped=$(tokens)
[ -n "$shipped" ] || fail "no tokens"
ours=$(tokens --set quantization.use=plain --set kv_cache.use=plain --set attention.use=plain --set draft.use=repeat \
  --set scheduler.use=turns)
[ "$ours" = "$shipped" ] || fail "the templates make $ours, the shipped parts $shipped"

first=${shipped#<}
first=${first%%>*}
banned=$(tokens --set "sampler.chain=[{use = \"ban\", token = $first}]")
[ -n "$banned" ] || fail "no tokens with one banned"
[[ $banned != *"<$first>"* ]] || fail "$first is banned, and there in $banned"
