#!/usr/bin/env bash
# Ten thousand steps of a server on a GPU: gpu_steps.sh BULKHEAD MODEL FOLDER. The GPU's free memory
# must stay the same as at READY, to the byte. Nothing else may use the GPU meanwhile.
set -uo pipefail
bulkhead=$1 model=$2 folder=$3
mkdir -p "$folder"
server=

stop() { [[ -z $server ]] || kill "$server" 2>/dev/null; }
trap stop EXIT
trap 'exit 1' TERM INT

fail() {
  echo "$1"
  exit 1
}

# load NAME FLAGS...: requests of 16 + 200 tokens each.
load() {
  local name=$1
  shift
  "$bulkhead" bench serve --target "$target" --random-input-len 16 --random-output-len 200 --random-range-ratio 0 \
    --no-self-check --result-dir "$folder/$name" "$@" >"$folder/$name.log" 2>&1 || fail "$(tail -n 1 "$folder/$name.log")"
}

"$bulkhead" serve --model "$model" --device "${DEVICE:-cuda}" --kv-cache-dtype bfloat16 --port 0 >"$folder/server.out" 2>"$folder/server.log" &
server=$!
until grep -q '^READY' "$folder/server.out"; do
  kill -0 "$server" 2>/dev/null || fail "the server ended before READY: $(tail -n 1 "$folder/server.log")"
  sleep 0.2
done
target=$(sed -n 's/^READY grpc=\([^ ]*\).*/\1/p' "$folder/server.out")
load steps --num-prompts 400 --max-concurrency 8
sleep "${LOOK_S:-11}" # it queries every 10 s
load after --num-prompts 1
rows=$(grep -A 4 '"devices": \[' "$folder/after/result.json" | grep -oE '"free_bytes[a-z_]*": [0-9]+' | grep -oE '[0-9]+$' | sort -u)
[[ -n $rows ]] || fail "the server does not say what its GPU has free"
(($(wc -l <<<"$rows") == 1)) || fail "free bytes of the GPU, now, at READY and at the least, differ: $(tr '\n' ' ' <<<"$rows")"
kill "$server"
wait "$server" || fail "the server did not end well: $(tail -n 1 "$folder/server.log")"
server=
echo "$rows bytes free before and after $(grep -m 1 'Total generated tokens' "$folder/steps.log" | grep -oE '[0-9]+') tokens, 8 at a time"
