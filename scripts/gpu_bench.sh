#!/usr/bin/env bash
# How fast Bulkhead is on this machine's GPU, within 8 minutes: a model of the Llama 3 8B shape with random
# weights, in bf16 and in int4, and a PyTorch loop on the same machine as the peer. A table last; JSON in $OUT.
# LAYERS=N takes fewer layers (for a smaller GPU or disk), SCRATCH=DIR is where the 16 GB of weights go: into memory
# where a file system there has room for them, since a disk may take minutes.
# DEVICE=cpu rehearses the script on a CPU with a tiny model: its figures mean nothing.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/gpu_environment.sh"
begin gpu_bench.json

layers=${LAYERS:-32}
in_memory=/dev/shm
room_kb=$(df --output=avail "$in_memory" 2>/dev/null | tail -n 1)
((${room_kb:-0} > 20000000)) || in_memory=$out
model=${SCRATCH:-$in_memory}/random_8b.$$
device=(--device cuda)
shape=(--layers "$layers")
measure=gpu_step
if [[ ${DEVICE:-cuda} == cpu ]]; then
  model=${SCRATCH:-$out}/random_tiny.$$
  device=(--device cpu)
  shape=(--tiny)
  measure=step
fi

scratch=$model
if ! command -v python3 >/dev/null; then
  add "random weights" FAILED "python3 is not installed"
  exit 1
fi
throughput=("$bulkhead" bench throughput --model "$model" "${device[@]}" --kv-cache-dtype bfloat16 --repeats 2)
$measure "random weights" 120 python3 "$here/random_model.py" "$model" "${shape[@]}"
$measure "bf16, batch 1 and 64 x 1k" 120 "${throughput[@]}" --batch-size 1,64 --input-len 1024 --output-len 64 --out "$out/bf16.json"
$measure "bf16, prefill 4k" 60 "${throughput[@]}" --batch-size 1 --input-len 4096 --output-len 2 --out "$out/prefill.json"
$measure "int4, batch 1" 90 "${throughput[@]}" --weight-dtype int4 --batch-size 1 --input-len 128 --output-len 64 --out "$out/int4.json"
if [[ -z $gpu ]]; then
  add "PyTorch, the same shape" absent "$no_gpu"
elif (($(left) < 100)); then
  add "PyTorch, the same shape" skipped "no time left"
elif bounded 60 "$out/torch.log" python3 -c 'import torch; assert torch.cuda.is_available()'; then
  step "PyTorch, the same shape" 180 python3 "$here/peer_loop.py" --layers "$layers" --out "$out/peer.json"
else
  add "PyTorch, the same shape" skipped "not installed, or it sees no GPU: $(last_line "$out/torch.log")"
fi
