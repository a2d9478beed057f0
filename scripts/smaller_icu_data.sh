#!/usr/bin/env bash
# Replaces ICU's data library (31 MB) by one with the only table that we use, NFKC:
# smaller_icu_data.sh LIBRARY, a copy of libicudata.so.NN.
set -euo pipefail
library=$1
version=${library##*.so.}
name=icudt${version}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/whole" "$folder/small"

# The library contains nothing but the package.
objcopy -O binary --only-section=.rodata "$library" "$folder/whole/${name}l.dat"
PATH=$PATH:/usr/sbin
icupkg -l "$folder/whole/${name}l.dat" | grep -vx nfkc.nrm >"$folder/unused.lst"
icupkg -r "$folder/unused.lst" "$folder/whole/${name}l.dat" "$folder/small/${name}l.dat"
cat >"$folder/data.s" <<ASSEMBLY
.section .rodata
.balign 16
.globl ${name}_dat
.type ${name}_dat, @object
${name}_dat: .incbin "$folder/small/${name}l.dat"
.size ${name}_dat, . - ${name}_dat
.section .note.GNU-stack, "", @progbits
ASSEMBLY
cc -shared -nostdlib -Wl,-soname,"$(basename "$library")" -o "$library" "$folder/data.s"
