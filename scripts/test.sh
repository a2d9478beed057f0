#!/usr/bin/env bash
# Installs what is missing, builds everything, runs every test, and finally lists skipped tests and
# the reasons. Arguments go to ctest (-L unit, -R name).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh

say "packages"
scripts/install_packages.sh --tests
say "build"
scripts/build.sh release
say "tests"  # two at a time; those that use both cores of the smallest machine say so (PROCESSORS)
results=$(mktemp)
output=$(mktemp)
trap 'rm -f "$results" "$output"' EXIT
failed=build/release/Testing/Temporary/LastTestsFailed.log
rm -f "$failed"
code=0
ctest --preset release -j 2 --output-junit "$results" --test-output-size-passed 1000000 "$@" 2>&1 | tee "$output" || code=$?

# What starts groups of processes depends on a shared machine's pauses: if nothing else failed in a whole run, and nothing
# hung, these tests get one more run, alone, and are named. Unit, model and lint tests get none.
names=
if ((code != 0 && $# == 0)) && [[ -s $failed ]] && ! grep -q '\*\*\*Timeout' "$output" && ! grep -qvE '^[0-9]+:(e2e_|cluster_|comm_e2e_test$)' "$failed"; then
  names=$(cut -d: -f2 "$failed" | paste -sd ' ')
  say "once more, alone: $names"
  code=0
  ctest --preset release -j 1 --rerun-failed || code=$?
fi
if [[ -s $results ]]; then
  scripts/skipped_tests.py "$results"
fi
if [[ -n $names ]] && ((code == 0)); then
  say "failed beside other work, passed alone; look into what the first run printed: $names"
fi
exit "$code"
