#!/usr/bin/env bash
# Builds a folder that runs on another machine with a GPU and only its driver installed: bundle.sh
# [FOLDER] [--source]. Contains program, tests, mpirun, shared libraries and their loader, the small
# models, the scripts; with --source also the source tree. cuBLASLt and NCCL are not included, but
# found on that machine. Also writes FOLDER.tar.xz, at most 60 MB (90 with the source). Kernels are
# compiled for CUDA_ARCHITECTURES ("80;90"), by default for all of 80, 90, 100 and 120 that nvcc has,
# in a build folder of its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh

folder=build/bundle
with_source=false
for argument in "$@"; do
  if [[ $argument == --source ]]; then with_source=true; else folder=$argument; fi
done
build=build/release_of_bundle
cmake --preset release -B "$build" >/dev/null
nvcc=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
if [[ ! -x $nvcc ]]; then
  echo "bundle.sh: no nvcc was found, and a bundle is for GPUs; add it to the PATH, or set CUDACXX" >&2
  exit 1
fi
architectures=${CUDA_ARCHITECTURES:-$(scripts/bundle_architectures.sh "$nvcc")}
cmake -B "$build" -DCMAKE_CUDA_ARCHITECTURES="$architectures" >/dev/null
cmake --build "$build" --target bulkhead gpu_test

rm -rf --one-file-system "$folder"
mkdir -p "$folder"/{program,lib,mpi/plugins,data/models,data/quantised,share/bulkhead}

# Open MPI's plugins. Excluded: networks other than TCP (their libraries are large), files,
# one-sided operations, OpenSHMEM, and monitoring or debugging.
mpirun=$(readlink -f "$(command -v mpirun)")
plugins=$(ompi_info --path pkglibdir --parsable | cut -d: -f3)
help=$(ompi_info --path pkgdatadir --parsable | cut -d: -f3)
find "$plugins" -name 'mca_*.so' | grep -vE \
  '_(ofi|openib|ucx|psm2?|monitoring|flux|jsm)\.so|mca_(io|fs|fbtl|fcoll|sharedfp|osc|atomic|memheap|s?pml_cm|scoll|spml|sshmem|vprotocol)_' |
  xargs cp -t "$folder/mpi/plugins"
cp -r "$help" "$folder/mpi/share"
pmix=$(dirname "$(readlink -f "$(ldd "$folder/mpi/plugins/mca_pmix_ext3x.so" | awk '/libpmix/ { print $3 }')")")
cp -r "$pmix/pmix" "$folder/mpi/pmix"
cp -r "$pmix/../share/pmix" "$folder/mpi/pmix_share"

cp -r tools "$folder/share/bulkhead/"  # found beside lib/, where the loader is that runs the program
cp "$build/bin/bulkhead" "$build/tests/gpu/gpu_test" "$folder/program/"
cp "$mpirun" "$folder/program/mpirun"
for binary in "$folder"/{program,mpi/plugins,mpi/pmix}/*; do
  ldd "$binary" | awk '$3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }'
done | sort -u | while read -r library; do
  cp -L "$library" "$folder/lib/"
done
scripts/smaller_icu_data.sh "$folder"/lib/libicudata.so.*
strip "$folder"/{program,mpi/plugins,mpi/pmix}/*
strip --strip-unneeded "$folder"/lib/*

# Each program is started by the loader that it was linked for, with its own libraries before any
# others; last is the folder where container hosts mount the driver's.
loader=$(basename "$(ldd "$build/bin/bulkhead" | awk '$1 ~ /^\/.*ld-linux/ { print $1 }')")
for program in bulkhead gpu_test mpirun; do
  cat >"$folder/$program" <<WRAPPER
#!/bin/sh
here=\$(cd "\$(dirname "\$0")" && pwd)
export BULKHEAD_TEST_DATA="\${BULKHEAD_TEST_DATA:-\$here/data}"
command -v ssh >/dev/null || export OMPI_MCA_plm=isolated
export OPAL_PKGLIBDIR="\$here/mpi/plugins" OPAL_PKGDATADIR="\$here/mpi/share" OPAL_SYSCONFDIR="\$here/mpi"
export PMIX_PKGLIBDIR="\$here/mpi/pmix" PMIX_PKGDATADIR="\$here/mpi/pmix_share"
exec "\$here/lib/$loader" --library-path "\$here/lib:\${LD_LIBRARY_PATH:+\$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64" "\$here/program/$program" "\$@"
WRAPPER
  chmod +x "$folder/$program"
done
for model in llama3_gqa_bf16 llama32_tied_bf16 mistral_window_bf16 qwen2_14h_bf16 qwen3_bf16 llama2_mha_f16 llama_mqa_bf16 qwen3_5_bf16 gemma4_bf16 mixtral_bf16 deepseek_v2_bf16; do
  cp -r "tests/data/models/$model" "$folder/data/models/"
done
cp -r tests/data/quantised/{gptq_act_order,awq,ct_mxfp4,gpt_oss_mxfp4} "$folder/data/quantised/"
cp scripts/gpu_{check,bench,environment,drill,steps}.sh scripts/{random_model,peer_loop,gpu_shares}.py "$folder/"
git rev-parse --short=7 HEAD >"$folder/commit"
limit_mb=60
if $with_source; then
  git archive HEAD | gzip >"$folder/source.tar.gz"
  limit_mb=90
fi

# One compression stream for everything: the two programs have much in common.
tar -C "$(dirname "$folder")" -cf - "$(basename "$folder")" | xz -T1 -9 >"$folder.tar.xz"
megabytes=$(($(stat -c %s "$folder.tar.xz") / 1000000))
say "$folder: $(du -sm "$folder" | cut -f1) MB, $folder.tar.xz: $megabytes MB"
if ((megabytes >= limit_mb)); then
  say "the archive should be below $limit_mb MB"
  exit 1
fi
