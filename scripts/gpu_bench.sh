#!/usr/bin/env bash
# Measures Bulkhead on this machine's GPU, within 8 minutes: kernels against the GPU's limits, a
# model of the Llama 3 8B shape with random weights, in bf16, int8 and int4, and a PyTorch loop on the
# same machine for comparison. Ends with a table: tokens per second of each case, their share of what
# reading allows and their ratio to PyTorch's; JSON in $OUT. LAYERS=N uses fewer layers (for a
# smaller GPU or disk), SCRATCH=DIR is the folder for 16 GB of weights: in memory if a file system
# there has room, since a disk may take minutes. DEVICE=cpu tries the script on a CPU with a tiny
# model, without meaningful figures.
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

if [[ $measure == step ]]; then
  step "kernels against the ceilings" 60 "$bulkhead" bench kernels "${device[@]}" --quick
else
  gpu_step "kernels against the ceilings" 120 "$bulkhead" bench kernels "${device[@]}"
  # The most informative lines of its log. Microseconds; GB/s and Gop/s, of the limit, share.
  # shellcheck disable=SC2016
  for row in "a launch=launch/" "decode attention, 64 x 4k=attend/64x4096/.*bfloat16" \
    "prefill attention, 4k=attend/1x4096/.*/4096 .*bfloat16" "the same, fp8 cache=attend/1x4096/.*/4096 .*fp8" \
    "the same, int8 cache=attend/1x4096/.*/4096 .*int8" "attention, 20 tokens behind 4k=attend/1x4096/.*/20 .*bfloat16" \
    "gate_up, bf16, 1 token=product/gate_up/.*/1 .*bfloat16" \
    "gate_up, bf16, 64 tokens=product/gate_up/.*/64 .*bfloat16" "gate_up, cuBLASLt, 64 tokens=library/gate_up/.*/64 " \
    "gate_up, int4, 1 token=product/gate_up/.*/1 .*int4" "gate_up, cuBLASLt, 4k tokens=library/gate_up/.*/4096 " \
    "experts, bf16, 512 pairs each=experts/gate_up/.*/512 .*bfloat16" "experts, int4, 512 pairs each=experts/gate_up/.*/512 .*int4"; do
    gpu_step "${row%%=*}" 10 bash -c 'grep -m 1 "^$1" "$2" | tr -s " " | grep . || echo "not measured"' _ "${row#*=}" \
      "$out/kernels_against_the_ceilings.log"
  done
fi

scratch=$model
if ! command -v python3 >/dev/null; then
  add "random weights" FAILED "python3 is not installed"
  exit 1
fi
throughput=("$bulkhead" bench throughput --model "$model" "${device[@]}" --kv-cache-dtype bfloat16 --repeats 2)
$measure "random weights" 120 python3 "$here/random_model.py" "$model" "${shape[@]}"
$measure "bf16" 120 "${throughput[@]}" --batch-size 1,8,64,128 --input-len 1024 --output-len 64 --out "$out/bf16.json"
$measure "bf16, prefill" 60 "${throughput[@]}" --batch-size 1 --input-len 4096,8128 --output-len 2 --out "$out/prefill.json"
$measure "int4 weights" 90 "${throughput[@]}" --weight-dtype int4 --batch-size 1,16,64 --input-len 128 --output-len 64 --out "$out/int4.json"
$measure "int8 weights" 90 "${throughput[@]}" --weight-dtype int8 --batch-size 1,16,64 --input-len 128 --output-len 64 --out "$out/int8.json"
$measure "int8 cache" 60 "${throughput[@]}" --kv-cache-dtype int8 --batch-size 64 --input-len 1024 --output-len 64 --out "$out/kv_int8.json"
if [[ -z $gpu ]]; then
  add "PyTorch, the same shape" absent "$no_gpu"
elif (($(left) < 100)); then
  add "PyTorch, the same shape" skipped "no time left"
elif bounded 60 "$out/torch.log" python3 -c 'import torch; assert torch.cuda.is_available()'; then
  step "PyTorch, the same shape" 180 python3 "$here/peer_loop.py" --layers "$layers" --out "$out/peer.json"
else
  add "PyTorch, the same shape" skipped "not installed, or it sees no GPU: $(last_line "$out/torch.log")"
fi
if python3 "$here/gpu_shares.py" "$out" "$model" >"$out/shares.txt" 2>"$out/shares.log"; then
  while IFS=$'\t' read -r name text; do add "$name" ok "$text"; done <"$out/shares.txt"
else
  add "shares of reading" FAILED "$(last_line "$out/shares.log")"
fi
