#!/usr/bin/env bash
# Makes a folder that runs on another machine with a GPU and nothing installed but its driver:
# bundle.sh [FOLDER] [--source]. Program, tests, shared libraries and their loader, the small models, the
# scripts; with --source the source tree, too. Not cuBLASLt and NCCL: those are found on that machine. Beside
# the folder lies FOLDER.tar.xz, at most 30 MB (60 with the source).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh

folder=build/bundle
with_source=false
for argument in "$@"; do
  if [[ $argument == --source ]]; then with_source=true; else folder=$argument; fi
done
build=build/release
scripts/build.sh release bulkhead gpu_test

rm -rf --one-file-system "$folder"
mkdir -p "$folder"/{program,lib,data/models,data/quantised}
for program in "$build/bin/bulkhead" "$build/tests/gpu/gpu_test"; do
  strip -o "$folder/program/$(basename "$program")" "$program"
  ldd "$program" | awk '$3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }'
done | sort -u | while read -r library; do
  cp -L "$library" "$folder/lib/"
done
# Each program is started by the loader that it was linked for, with its own libraries before any others.
loader=$(basename "$(ldd "$build/bin/bulkhead" | awk '$1 ~ /^\/.*ld-linux/ { print $1 }')")
for program in bulkhead gpu_test; do
  cat >"$folder/$program" <<WRAPPER
#!/bin/sh
here=\$(cd "\$(dirname "\$0")" && pwd)
export BULKHEAD_TEST_DATA="\${BULKHEAD_TEST_DATA:-\$here/data}"
exec "\$here/lib/$loader" --library-path "\$here/lib:\${LD_LIBRARY_PATH:-}" "\$here/program/$program" "\$@"
WRAPPER
  chmod +x "$folder/$program"
done
for model in llama3_gqa_bf16 llama32_tied_bf16 mistral_window_bf16 qwen2_14h_bf16 qwen3_bf16 llama2_mha_f16 llama_mqa_bf16; do
  cp -r "tests/data/models/$model" "$folder/data/models/"
done
cp -r tests/data/quantised/{gptq_act_order,awq} "$folder/data/quantised/"
cp scripts/gpu_check.sh scripts/gpu_bench.sh scripts/gpu_environment.sh scripts/random_model.py scripts/peer_loop.py "$folder/"
git rev-parse --short=7 HEAD >"$folder/commit"
limit_mb=30
if $with_source; then
  git archive HEAD | gzip >"$folder/source.tar.gz"
  limit_mb=60
fi

tar -C "$(dirname "$folder")" -cf - "$(basename "$folder")" | xz -T0 -6 >"$folder.tar.xz"
megabytes=$(($(stat -c %s "$folder.tar.xz") / 1000000))
say "$folder: $(du -sm "$folder" | cut -f1) MB, $folder.tar.xz: $megabytes MB"
if ((megabytes >= limit_mb)); then
  say "the archive should be below $limit_mb MB"
  exit 1
fi
