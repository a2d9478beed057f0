#!/usr/bin/env bash
# Configures and builds one preset: build.sh [PRESET] [TARGET...].  Presets: release, dev, asan, tsan.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:-release}
shift || true
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake --preset "$preset" >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
targets=()
[[ $# -eq 0 ]] || targets=(--target "$@")
cmake --build --preset "$preset" "${targets[@]}"
