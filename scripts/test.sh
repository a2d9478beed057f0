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
trap 'rm -f "$results"' EXIT
code=0
ctest --preset release -j 2 --output-junit "$results" --test-output-size-passed 1000000 "$@" || code=$?
if [[ -s $results ]]; then
  scripts/skipped_tests.py "$results"
fi
exit "$code"
