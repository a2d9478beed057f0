#!/bin/sh
# A compiler launcher: runs COMMAND... -o OBJECT ... and saves ptxas's report of registers and
# spills next to the object, for tests/kernels/cuda/registers_test.py.
object=
previous=
for argument in "$@"; do
  [ "$previous" = -o ] && object=$argument
  previous=$argument
done
[ -n "$object" ] || exec "$@"
"$@" 2>"$object.ptxas"
code=$?
[ $code -eq 0 ] || cat "$object.ptxas" >&2
exit $code
