#!/usr/bin/env bash
# How fast Bulkhead is on this machine's GPU, within 8 minutes: a model of the Llama 3 8B shape with random
# weights, in bf16 and in int4, and a PyTorch loop on the same machine as the peer. A table last; JSON in $OUT.
# LAYERS=N takes fewer layers (for a smaller GPU or disk), SCRATCH=DIR is where the 16 GB of weights go.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/gpu_environment.sh"
limit_s=${LIMIT_S:-460}
layers=${LAYERS:-32}
scratch=${SCRATCH:-$out}

if [[ -z $gpu ]]; then
  add "a GPU" FAILED "nvidia-smi shows none"
  finish gpu_bench.json
  exit 1
fi
if ! command -v python3 >/dev/null; then
  add "random weights" FAILED "python3 is not installed"
  finish gpu_bench.json
  exit 1
fi

# measure NAME SECONDS COMMAND...: the last line of its output is what the table shows.
measure() {
  local name=$1 seconds=$2 log=$out/${1//[ ,]/_}.log state=ok
  shift 2
  if (($(left) < 10)); then
    add "$name" skipped "no time left"
    return
  fi
  ((seconds < $(left))) || seconds=$(left)
  timeout --kill-after=5 "$seconds" "$@" >"$log" 2>&1 || state=FAILED
  add "$name" $state "$(tail -n 1 "$log" | tr '\t' ' ' | cut -c1-120)"
}

model=$scratch/random_8b
measure "random weights" 120 python3 "$here/random_model.py" "$model" --layers "$layers"
throughput() { "$bulkhead" bench throughput --model "$model" --device cuda --kv-cache-dtype bfloat16 "$@"; }
measure "bf16, batch 1 and 64 x 1k" 150 throughput --batch-size 1,64 --input-len 1024 --output-len 64 --repeats 2 --out "$out/bf16.json"
measure "bf16, prefill 4k" 60 throughput --batch-size 1 --input-len 4096 --output-len 2 --repeats 2 --out "$out/prefill.json"
measure "int4, batch 1" 90 throughput --weight-dtype int4 --batch-size 1 --input-len 128 --output-len 64 --repeats 2 --out "$out/int4.json"
if python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
  measure "PyTorch, the same shape" 180 python3 "$here/peer_loop.py" --layers "$layers" --out "$out/peer.json"
else
  add "PyTorch" skipped "not installed, or it sees no GPU"
fi
[[ -n ${KEEP:-} ]] || rm -rf --one-file-system "$model"
finish gpu_bench.json
