#!/usr/bin/env bash
# Whether Bulkhead is right on this machine's GPU, within 8 minutes: the words of the kernels against their
# emulation, whole small models against the CPU (one rank, and two that share the GPU), the ledger against what
# the GPU says, what happens when another process takes memory, compute-sanitizer. A table last; JSON in $OUT.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/gpu_environment.sh"
limit_s=${LIMIT_S:-460}

# step NAME SECONDS COMMAND...: its last line is what the table shows.
step() {
  local name=$1 seconds=$2 log=$out/${1// /_}.log state=ok
  shift 2
  ((seconds < $(left))) || seconds=$(left)
  timeout --kill-after=5 "$seconds" "$@" >"$log" 2>&1 || state=FAILED
  add "$name" $state "$(tail -n 1 "$log" | tr '\t' ' ' | cut -c1-100)"
}

if [[ -z $gpu ]]; then
  add "a GPU" FAILED "nvidia-smi shows none"
  finish gpu_check.json
  exit 1
fi

model=$here/data/models/llama3_gqa_bf16
[[ -d $model ]] || model=$here/../tests/data/models/llama3_gqa_bf16
prompts=$out/prompts.jsonl
for i in {1..8}; do echo "{\"prompt_token_ids\": [$i, 2, 3, 4, 5], \"max_tokens\": 32, \"ignore_eos\": true}"; done >"$prompts"
run_model() { "$bulkhead" run --model "$model" --prompts "$prompts" --kv-cache-dtype bfloat16 "$@"; }

step "words against the emulator" 120 "$gpu_test" --gtest_filter='Words.*'
step "memory against the GPU" 60 "$gpu_test" --gtest_filter='MemoryOnGpuTest.*'
step "models at tp 1 against the CPU" 120 "$gpu_test" --gtest_filter='*ModelOnGpu*AtTp1'
step "models at tp 2 as threads" 120 "$gpu_test" --gtest_filter='*ModelOnGpu*AtTp2'
step "the program, one rank" 60 run_model --device cuda --out "$out/cuda.jsonl"
step "the program, under a cap" 60 run_model --device cuda --device-memory 1GiB --out "$out/capped.jsonl"

# More than there is: refused with the numbers, nothing left behind.
step "a cap beyond the GPU is refused" 60 bash -c '
  "$1" run --model "$2" --prompts "$3" --kv-cache-dtype bfloat16 --device cuda --device-memory 10TiB --out /dev/null
  code=$?
  echo "exit code $code (4: does not fit)"
  [[ $code -eq 4 ]]' _ "$bulkhead" "$model" "$prompts"

# The bundle's Open MPI is Debian's and takes its plugins from where Debian has them.
if command -v mpirun >/dev/null && [[ ! -d $here/lib || -d /usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi3 ]]; then
  step "tp 2 on one GPU, staged" 90 mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 \
    "$bulkhead" run --model "$model" --prompts "$prompts" --kv-cache-dtype bfloat16 --device cuda --comm staged --out "$out/staged.jsonl"
  step "tp 2 on one GPU, refused unasked" 30 bash -c '
    ! mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 "$1" run --model "$2" --prompts "$3" --kv-cache-dtype bfloat16 \
      --device cuda --out /dev/null' _ "$bulkhead" "$model" "$prompts"
else
  add "tp 2 by mpirun" skipped "no mpirun of ours here; ranks ran as threads above"
fi

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
loader=$(ls "$here"/lib/ld-linux-x86-64.so.2 2>/dev/null || true)
words=("$gpu_test")
[[ -z $loader ]] || words=("$loader" --library-path "$here/lib" "$here/program/gpu_test")
if [[ -n $sanitizer ]]; then
  for tool in memcheck racecheck; do
    step "compute-sanitizer $tool" 120 "$sanitizer" --tool "$tool" --error-exitcode 1 "${words[@]}" --gtest_filter='Words.*'
  done
else
  add "compute-sanitizer" skipped "not installed"
fi
finish gpu_check.json
