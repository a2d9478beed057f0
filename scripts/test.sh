#!/usr/bin/env bash
# Installs what is missing, builds everything, runs every test. Arguments go to ctest (-L unit, -R name).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh

say "packages"
scripts/install_packages.sh
say "build"
scripts/build.sh release
say "tests"
ctest --preset release "$@"
