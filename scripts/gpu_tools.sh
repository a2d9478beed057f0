#!/usr/bin/env bash
# Gets NVIDIA's disassemblers from PyPI, where the CUDA toolkit lacks them, for the test of the
# kernels' machine code (tests/kernels/cuda/sass_test.py): into build/gpu_tools, nowhere else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=13.2.51 # reads the code of every nvcc from 12.0 on

if ! python3 -m venv build/gpu_tools; then
  echo "gpu_tools.sh: python3 cannot make a virtual environment; on Debian: apt install python3-venv" >&2
  exit 1
fi
build/gpu_tools/bin/pip install --quiet nvidia-cuda-cuobjdump==$version nvidia-cuda-nvdisasm==$version
echo "$PWD"/build/gpu_tools/lib/*/site-packages/nvidia/*/bin/{cuobjdump,nvdisasm} | tr ' ' '\n'
echo "ctest --preset release -R cuda_sass   # runs with them"
