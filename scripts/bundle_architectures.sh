#!/usr/bin/env bash
# bundle_architectures.sh NVCC: what a bundle's kernels are compiled for, as CMAKE_CUDA_ARCHITECTURES
# has it: 80, 90, 100 and 120, those of them that this nvcc has.
set -euo pipefail
known=" $("$1" --list-gpu-code | tr '\n' ' ')"
chosen=()
for architecture in 80 90 100 120; do
  [[ $known != *" sm_$architecture "* ]] || chosen+=("$architecture")
done
(
  IFS=';'
  echo "${chosen[*]}"
)
