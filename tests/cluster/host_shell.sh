#!/bin/sh
# What ssh is to mpirun, between the hosts of hosts.py: host_shell.sh [options] HOST COMMAND...
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
case $host in
  hosta | 10.77.0.1) exec sh -c "$*" ;;
esac
for entry in $BULKHEAD_HOLDERS; do # name=pid
  [ "${entry%%=*}" != "$host" ] || exec nsenter --target "${entry#*=}" --net --uts --mount --pid -- sh -c "$*"
done
echo "host_shell.sh: no host '$host'" >&2
exit 255
