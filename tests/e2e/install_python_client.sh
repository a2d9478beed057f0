#!/usr/bin/env bash
# install_python_client.sh OUT: builds the wheel of clients/python without network, and installs it in OUT. The source tree
# stays as it is.
set -euo pipefail
out=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
mkdir "$build/clients"
cp -r "$root/clients/python" "$build/clients/python"
rm -rf "$build/clients/python/build"
ln -s "$root/proto" "$build/proto"
pip=(/usr/bin/python3 -m pip --disable-pip-version-check -q)
"${pip[@]}" wheel --no-build-isolation --no-deps --no-index -w "$build/wheel" "$build/clients/python"
rm -rf "$out"
"${pip[@]}" install --no-deps --no-index --target "$out" "$build"/wheel/bulkhead_client-*.whl
