#!/usr/bin/env bash
# Checks Bulkhead on this machine's GPU, within 8 minutes: first on the CPU whether the program and
# mpirun work at all; then kernel ops against their emulation, whole small models against the CPU
# (one rank, and two that share the GPU), the ledger against the GPU's own report, behaviour when
# another process takes memory, compute-sanitizer. Ends with a table; JSON in $OUT. Exit code 77:
# all passed, but there is no GPU.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/gpu_environment.sh"
begin gpu_check.json

prompts=$out/prompts.jsonl
for i in {1..8}; do
  echo "{\"prompt_token_ids\": [$i, 2, 3, 4, 5], \"max_tokens\": 32, \"ignore_eos\": true, \"temperature\": 0, \"seed\": 1}"
done >"$prompts"
run=("$bulkhead" run --model "$models/llama3_gqa_bf16" --prompts "$prompts" --kv-cache-dtype bfloat16)
two=("$mpirun" --bind-to none -n 2)

# shellcheck disable=SC2016
step "a plan for an H100" 30 bash -c '"$1" plan --model "$2" --gpu h100 >"$3" && grep -m 1 "^KV cache" "$3"' _ \
  "$bulkhead" "$models/llama3_gqa_bf16" "$out/plan.txt"
step "CPU: one rank" 60 "${run[@]}" --device cpu --out "$out/cpu.jsonl"
if [[ -n $mpirun ]]; then
  step "CPU: two ranks" 90 "${two[@]}" "${run[@]}" --device cpu --out "$out/cpu2.jsonl"
  # shellcheck disable=SC2016
  step "CPU: the same from both" 10 bash -c 'cmp "$1" "$2" && echo "$(wc -l <"$1") answers, byte for byte"' _ \
    "$out/cpu.jsonl" "$out/cpu2.jsonl"
else
  add "CPU: two ranks" skipped "no mpirun"
fi

gpu_step "words against the emulator" 120 "$gpu_test" --gtest_filter='Words.*:*WarpgroupProducts*'
gpu_step "kernels against the reference" 90 "$gpu_test" --gtest_filter='*Cuda*:RoundSumTest.*:WriteLateTest.*'
gpu_step "one-shot sums of two streams" 60 "$gpu_test" --gtest_filter='PeerSumsTest.*'
gpu_step "products by cuBLASLt" 60 "$gpu_test" --gtest_filter='*ProductsOnGpu*'
gpu_step "tokens drawn against the host's sampler" 60 "$gpu_test" --gtest_filter='*Sampling*:FillInSampled.*:*WholeRow*'
gpu_step "memory against the GPU" 60 "$gpu_test" --gtest_filter='MemoryOnGpuTest.*'
gpu_step "models at tp 1 against the CPU" 120 "$gpu_test" --gtest_filter='*ModelOnGpu*AtTp1'
gpu_step "models at tp 2 as threads" 120 "$gpu_test" --gtest_filter='*ModelOnGpu*AtTp2'
gpu_step "the program, one rank" 60 "${run[@]}" --device cuda --out "$out/cuda.jsonl"
# shellcheck disable=SC2016
gpu_step "the same with kernels one by one" 60 env BULKHEAD_EARLY_LAUNCH=0 bash -c '
  out=$1 && shift && "$@" --out "$out/late.jsonl" && cmp "$out/cuda.jsonl" "$out/late.jsonl"' _ "$out" "${run[@]}" --device cuda
gpu_step "the program, under a cap" 60 "${run[@]}" --device cuda --device-memory 1GiB --out "$out/capped.jsonl"
gpu_step "drafts by prompt lookup" 60 "${run[@]}" --device cuda --out "$out/lookup.jsonl" --speculative-config \
  '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 2, "prompt_lookup_min": 1}'
# Its own drafts: nearly all are accepted.
gpu_step "drafts by a draft model" 90 "${run[@]}" --device cuda --out "$out/drafts.jsonl" --speculative-config \
  "{\"model\": \"$models/llama3_gqa_bf16\", \"num_speculative_tokens\": 4}"

# More than available: refused with the numbers, nothing left behind.
# shellcheck disable=SC2016
gpu_step "a cap beyond the GPU is refused" 60 bash -c '
  "$@" --device cuda --device-memory 10TiB --out /dev/null
  code=$?
  echo "exit code $code (4: does not fit)"
  ((code == 4))' _ "${run[@]}"

gpu_step "another process before and after" 100 "$here/gpu_drill.sh" "$bulkhead" "$models/llama3_gqa_bf16" "$out/drill"

gpu_step "free memory over 10,000 steps" 90 "$here/gpu_steps.sh" "$bulkhead" "$models/llama3_gqa_bf16" "$out/steps"

if [[ -n $mpirun ]]; then
  first=${CUDA_VISIBLE_DEVICES:-0}
  shared=(env CUDA_VISIBLE_DEVICES="${first%%,*}" "${two[@]}" "${run[@]}" --device cuda)
  gpu_step "tp 2 on one GPU, staged" 90 "${shared[@]}" --comm staged --out "$out/staged.jsonl"
  # shellcheck disable=SC2016
  gpu_step "tp 2 on one GPU, refused unasked" 30 bash -c '
    "$@" --out /dev/null
    code=$?
    echo "exit code $code (2: two ranks on one GPU)"
    ((code == 2))' _ "${shared[@]}"
  # shellcheck disable=SC2016
  gpu_step "tp 2 on one GPU, NCCL" 90 bash -c '
    "$@"
    code=$?
    echo "exit code $code (2: NCCL is absent, or older than 2.30)"
    ((code == 0 || code == 2))' _ "${shared[@]}" --comm nccl --out "$out/nccl.jsonl"
  # Sums between two GPUs, after kernels that let the next one start early and after others.
  if (($(timeout 20 nvidia-smi -L 2>/dev/null | grep -c .) > 1)); then
    # shellcheck disable=SC2016
    gpu_step "tp 2 on two GPUs, NCCL, the same with kernels one by one, and without one-shot sums" 150 bash -c '
      out=$1 && shift
      "$@" --out "$out/two.jsonl" && BULKHEAD_EARLY_LAUNCH=0 "$@" --out "$out/two_late.jsonl" &&
        cmp "$out/two.jsonl" "$out/two_late.jsonl" && BULKHEAD_ONE_SHOT=0 "$@" --out "$out/two_nccl.jsonl" &&
        cmp "$out/two.jsonl" "$out/two_nccl.jsonl"' _ "$out" "${two[@]}" "${run[@]}" --device cuda --comm nccl
  fi
else
  add "tp 2 on one GPU" skipped "no mpirun"
fi

# The tool follows programs, not the shell script that starts them in a bundle.
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
words=("$gpu_test")
for loader in "$here"/lib/ld-linux-*.so.*; do
  [[ ! -x $loader ]] || words=("$loader" --library-path "$here/lib:${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64" "$here/program/gpu_test")
done
if [[ -n $sanitizer ]]; then
  # Kernels and whole models, in four processes at once, but none that wait for one another or look at the GPU's free memory;
  # racecheck, which takes a hundred times as long, only the ops.
  for tool in memcheck initcheck; do
    # shellcheck disable=SC2016
    gpu_step "compute-sanitizer $tool" 150 bash -c '
      logs=$1 processes=() code=0 && shift
      for i in 0 1 2 3; do
        GTEST_TOTAL_SHARDS=4 GTEST_SHARD_INDEX=$i "$@" >"$logs.$i.log" 2>&1 &
        processes+=($!)
      done
      for process in "${processes[@]}"; do wait "$process" || code=1; done
      grep -ahE "FAILED|ERROR SUMMARY" "$logs".[0-3].log
      exit $code' _ "$out/$tool" "$sanitizer" --tool "$tool" --error-exitcode 1 "${words[@]}" \
      --gtest_filter='-*AtTp2:MemoryOnGpu*:ModelOnGpuGraphs*:PeerSumsTest*:*ProductsOnGpu*'
  done
  gpu_step "compute-sanitizer racecheck" 120 "$sanitizer" --tool racecheck --error-exitcode 1 "${words[@]}" --gtest_filter='Words.*'
else
  add "compute-sanitizer" skipped "not installed"
fi
