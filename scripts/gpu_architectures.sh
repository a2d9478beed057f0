#!/usr/bin/env bash
# Compiles every kernel for the GPU architectures that the build leaves out and checks their machine
# code by the rules of docs/gpu.md; figures are not compared. gpu_architectures.sh [89|100|120]...;
# all of them without an argument. Needs cuobjdump, as the test of machine code does.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh

[[ $# -gt 0 ]] || set -- 89 100 120
scripts/build.sh release "${@/#/bulkhead_cuda_kernels_sm_}"
NVCC=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' build/release/CMakeCache.txt)
export NVCC
for check in registers sass; do
  for architecture in "$@"; do
    say "sm_$architecture: $check"
    objects=build/release/kernels/CMakeFiles/bulkhead_cuda_kernels_sm_$architecture.dir
    /usr/bin/python3 -B tests/kernels/cuda/${check}_test.py "$objects"
  done
done
