#!/usr/bin/env bash
# Runs the tests that support sanitizers (without MPI) under AddressSanitizer with UBSan and under
# ThreadSanitizer. sanitizers.sh [asan|tsan] [ctest arguments]; both without an argument.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh

presets=(asan tsan)
if [[ ${1:-} == asan || ${1:-} == tsan ]]; then
  presets=("$1")
  shift
fi
suppressions=$PWD/scripts/suppressions
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1}
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$suppressions/leaks.txt:print_suppressions=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-suppressions=$suppressions/threads.txt:halt_on_error=1}

# g++ 12's ThreadSanitizer does not support the address space layouts of newer kernels.
fixed_layout=()
if setarch --addr-no-randomize true 2>/dev/null; then
  fixed_layout=(setarch --addr-no-randomize)
fi

scripts/install_packages.sh
for preset in "${presets[@]}"; do
  say "$preset: build"
  scripts/build.sh "$preset"
  say "$preset: tests"
  "${fixed_layout[@]}" ctest --preset "$preset" "$@"
done
