#!/usr/bin/env bash
# Two servers on one GPU: gpu_drill.sh BULKHEAD MODEL FOLDER. The first takes a little; the second
# measures the remaining memory and takes most of it. So the second sees another process before
# READY, and the first one after: it must report this at its next query, with a name or the reason
# why there is none. Fails with what was missing.
set -uo pipefail
bulkhead=$1 model=$2 folder=$3
mkdir -p "$folder"
servers=()

stop() { ((${#servers[@]} == 0)) || kill "${servers[@]}" 2>/dev/null; }
trap stop EXIT
trap 'exit 1' TERM INT

# serve NAME FLAGS...: returns at READY.
serve() {
  local name=$1
  shift
  "$bulkhead" serve --model "$model" --device cuda --kv-cache-dtype bfloat16 --port 0 --report "$folder/$name.json" "$@" \
    >"$folder/$name.out" 2>"$folder/$name.log" &
  servers+=($!)
  until grep -q '^READY' "$folder/$name.out"; do
    if ! kill -0 $! 2>/dev/null; then
      echo "the $name server ended before READY: $(tail -n 1 "$folder/$name.log")"
      exit 1
    fi
    sleep 0.2
  done
}

serve first --device-memory 1GiB
serve second
# Contexts count, too, but less than a GB.
if ! grep -qE '"others_bytes": [0-9]{10}' "$folder/second.json"; then
  echo "the second server did not see the first one's memory"
  exit 1
fi
for ((look = 0; look < ${LOOK_S:-30}; ++look)); do # it queries every 10 s
  sleep 1
  missed=$(grep -m 1 'less than when the ledger was sealed' "$folder/first.log") && break
done
if [[ -z ${missed:-} ]]; then
  echo "the first server did not notice the second one"
  exit 1
fi
kill "${servers[@]}"
for server in "${servers[@]}"; do
  if ! wait "$server"; then
    echo "a server did not end well: $(tail -n 1 "$folder/first.log") | $(tail -n 1 "$folder/second.log")"
    exit 1
  fi
done
servers=()
echo "${missed#*warning: }"
