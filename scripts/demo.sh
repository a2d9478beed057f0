#!/usr/bin/env bash
# From nothing to generated text: installs, builds, serves the bundled model on two ranks, sends a
# few prompts and stops the group. RANKS and MODEL choose others.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh

ranks=${RANKS:-2}
model=${MODEL:-examples/models/sample}
bulkhead=build/release/bin/bulkhead
ready_limit_s=300
server=
log=$(mktemp)

# Nothing keeps running, however this script ends.
stop() {
  trap - EXIT INT TERM
  if [[ -n $server ]] && kill -TERM "$server" 2>/dev/null; then
    for _ in {1..80}; do
      kill -0 "$server" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$server" 2>/dev/null || true
  fi
  rm -f "$log"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "packages"
scripts/install_packages.sh
say "build"
scripts/build.sh release bulkhead

say "a group of $ranks ranks serves $model"
mpirun -n "$ranks" --oversubscribe --bind-to none "$bulkhead" serve --model "$model" --port 0 >"$log" 2>&1 &
server=$!
shown=0
target=
for ((tenths = 0; tenths < ready_limit_s * 10; ++tenths)); do
  alive=true
  kill -0 "$server" 2>/dev/null || alive=false
  lines=$(wc -l <"$log")
  if ((lines > shown)); then
    sed -n "$((shown + 1)),${lines}p" "$log"
    shown=$lines
  fi
  target=$(sed -n 's/^READY .*grpc=\([^ ]*\).*/\1/p; s/^READY grpc=\([^ ]*\).*/\1/p' "$log" | head -n 1)
  [[ -z $target ]] || break
  $alive || break
  sleep 0.1
done
if [[ -z $target ]]; then
  say "the group did not become ready"
  exit 1
fi

say "three prompts"
"$bulkhead" generate --target "$target" --stats --max-tokens 80 --temperature 0.7 --seed 11 \
  "Once upon a time, there was" \
  "One day, Mia went to the harbor. She found a" \
  "The days of the week, starting with Thursday:"

say "shut down"
"$bulkhead" drain --target "$target"
code=0
wait "$server" || code=$?
server=
say "the group ended with exit code $code"
exit "$code"
