#!/usr/bin/env bash
# clang-format and clang-tidy over the given sources, or over all of them (minutes). Needs clang-format,
# clang-tidy and a release build (for its compile commands).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

files=("$@")
[[ $# -gt 0 ]] || mapfile -t files < <(git ls-files '*.cc' '*.h')
clang-format --dry-run -Werror "${files[@]}"
printf '%s\n' "${files[@]}" | grep '\.cc$' |
  xargs -P "$(nproc)" -n 1 clang-tidy -p build/release --quiet --extra-arg=-Wno-unknown-warning-option
