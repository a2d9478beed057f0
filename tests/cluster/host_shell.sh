#!/bin/sh
# What ssh is to mpirun, between the hosts of hosts.py: host_shell.sh [options] HOST COMMAND...
while [ "${1#-}" != "$1" ]; do shift; done
case $1 in
  hosta | 10.77.0.1) shift; exec sh -c "$*" ;;
  hostb | 10.77.0.2) shift; exec nsenter --target "$BULKHEAD_HOSTB" --net --uts --mount --pid -- sh -c "$*" ;;
esac
echo "host_shell.sh: no host '$1'" >&2
exit 255
