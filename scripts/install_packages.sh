#!/usr/bin/env bash
# Installs the packages of Debian 12 or 13, or Ubuntu 24.04, for building, testing and running; only
# missing ones. With --tests, as root, also those for the tests of several hosts, of Slurm (only root
# can run these) and of the package, and for scripts/lint.py.
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache pkg-config                        # the build
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc
  libabsl-dev libcli11-dev nlohmann-json3-dev libpcre2-dev libicu-dev libssl-dev libnghttp2-dev
  libboost-dev libzip-dev libedit-dev libtomlplusplus-dev prometheus-cpp-dev
  libopenmpi-dev openmpi-bin                                     # groups of ranks
  libgtest-dev libgmock-dev                                      # tests
  python3 python3-grpcio python3-protobuf python3-jinja2 python3-jsonschema python3-yaml procps openssl
  python3-pip python3-setuptools python3-wheel                   # clients/python
  python3-numpy python3-matplotlib                               # intervals and charts of tools/bench
)
if [[ ${1:-} == --tests && $(id -u) -eq 0 ]]; then
  packages+=(iptables iproute2 slurm-wlm munge dpkg-dev file groff-base clang clang-format clang-tidy
             prometheus)                                         # promtool
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi

root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "these packages are missing, and installing them needs root: ${missing[*]}" >&2
    exit 1
  fi
  root=(sudo)
fi
apt() { "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"; }

echo "installing ${#missing[@]} packages: ${missing[*]}" >&2
apt update
# apt-get's progress is only of interest if it fails.
log=$(mktemp)
policy=
trap 'rm -f "$log" $policy' EXIT
# The daemons among them are only started by tests, with their own files.
if [[ $(id -u) -eq 0 && ! -e /usr/sbin/policy-rc.d ]]; then
  policy=/usr/sbin/policy-rc.d
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi
if ! apt install --yes --no-install-recommends "${missing[@]}" >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  exit 1
fi
