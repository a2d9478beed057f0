# Sourced by gpu_check.sh and gpu_bench.sh, in a bundle or in the source tree: paths, how to run a
# step, and the table and JSON that both always end with.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$here/..
export PATH=$PATH:/usr/local/nvidia/bin  # where container hosts mount nvidia-smi
mpirun=$(command -v mpirun || true)
if [[ -x $here/bulkhead ]]; then
  root=$here
  bulkhead=$here/bulkhead
  gpu_test=$here/gpu_test
  mpirun=$here/mpirun
  commit=$(cat "$here/commit")
  models=$here/data/models
  export BULKHEAD_TEST_DATA=${BULKHEAD_TEST_DATA:-$here/data}  # for programs that no wrapper starts
else
  bulkhead=$root/build/release/bin/bulkhead
  gpu_test=$root/build/release/tests/gpu/gpu_test
  commit=$(git -C "$here" rev-parse --short=7 HEAD 2>/dev/null || echo unknown)
  models=$root/tests/data/models
fi
out=${OUT:-$PWD/gpu_results}
mkdir -p "$out" || exit 2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1

limit_s=${LIMIT_S:-450}
running=    # the process of the step
results=()  # "name<TAB>ok|FAILED|skipped|absent<TAB>what it says"

# printable TEXT: on one line, in ASCII, at most 110 characters.
printable() { printf '%s' "$1" | LC_ALL=C tr '\t\n' '  ' | LC_ALL=C tr -cd '\40-\176' | cut -c1-110; }

# add NAME STATE TEXT
add() { results+=("$1"$'\t'"$2"$'\t'"$(printable "$3")"); }

left() { echo $((limit_s - SECONDS)); }

# bounded SECONDS LOG COMMAND...: its exit code, or 124 after a timeout. A process that survives
# SIGKILL (hanging in a driver) is left behind.
bounded() {
  local seconds=$1 log=$2 end
  shift 2
  timeout --kill-after=5 "$seconds" "$@" >"$log" 2>&1 </dev/null &
  running=$!
  end=$((SECONDS + seconds + 10))
  while kill -0 "$running" 2>/dev/null; do
    ((SECONDS < end)) || return 124
    sleep 0.05
  done
  wait "$running"
}

last_line() { LC_ALL=C grep -av '^[[:space:]]*$' "$1" 2>/dev/null | tail -n 1; }

# step NAME SECONDS COMMAND...: runs a program (not a function) within SECONDS and the rest of the
# total limit. The table shows its last line; the log has all output.
step() {
  local name=$1 seconds=$2 log=$out/${1//[^a-zA-Z0-9]/_}.log code=0
  shift 2
  if (($(left) < 25)); then
    add "$name" skipped "no time left"
    return
  fi
  ((seconds < $(left) - 20)) || seconds=$(($(left) - 20))
  bounded "$seconds" "$log" "$@" || code=$?
  case $code in
    0) add "$name" ok "$(last_line "$log")" ;;
    124 | 137) add "$name" FAILED "cut off after $seconds s: $(last_line "$log")" ;;
    *) add "$name" FAILED "exit code $code: $(last_line "$log")" ;;
  esac
}

# gpu_step ...: the same, if there is a GPU.
gpu_step() { if [[ -n $gpu ]]; then step "$@"; else add "$1" absent "$no_gpu"; fi; }

# The GPU's name from nvidia-smi; "" with the reason in no_gpu.
find_gpu() {
  local log=$out/nvidia_smi.log
  gpu=
  no_gpu="no GPU: nvidia-smi is not installed"
  command -v nvidia-smi >/dev/null || return 0
  if bounded 20 "$log" nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; then
    gpu=$(printable "$(head -n 1 "$log")")
    no_gpu="no GPU: nvidia-smi shows none"
  else
    no_gpu="no GPU: nvidia-smi: $(last_line "$log")"
  fi
}

# NCCL from PyTorch, if the loader does not find one.
find_nccl() {
  [[ -z ${BULKHEAD_NCCL:-} ]] && command -v python3 >/dev/null || return 0
  local log=$out/nccl_path.log path
  bounded 20 "$log" python3 -c 'import importlib.util as u
s = u.find_spec("nvidia.nccl")
print(list(s.submodule_search_locations)[0] + "/lib/libnccl.so.2" if s else "")' || return 0
  path=$(last_line "$log")
  [[ ! -e $path ]] || export BULKHEAD_NCCL=$path
}

# cuBLASLt likewise. Set but empty means not wanted.
find_cublaslt() {
  [[ -z ${BULKHEAD_CUBLASLT+x} ]] && command -v python3 >/dev/null || return 0
  local log=$out/cublaslt_path.log path
  bounded 20 "$log" python3 -c 'import glob, importlib.util as u
s = u.find_spec("nvidia")
print(*(p for d in (s.submodule_search_locations if s else ()) for p in glob.glob(d + "/*/lib/libcublasLt.so.1[2-9]")), sep="\n")' || return 0
  path=$(last_line "$log")
  [[ ! -e $path ]] || export BULKHEAD_CUBLASLT=$path
}

quoted() { local text=${1//\\/\\\\}; printf '"%s"' "${text//\"/\\\"}"; }

# finish FILE, at the end of the script: removes $scratch, unless KEEP is set; writes the results as
# JSON, then as a table. Exit code 1 if a step failed, 77 if none did and there was no GPU.
finish() {
  local file=$out/$1 code=0 separator='' line name state text
  trap - EXIT
  [[ -z ${scratch:-} || -n ${KEEP:-} ]] || rm -rf --one-file-system "$scratch"
  {
    printf '{"commit": %s, "gpu": %s, "seconds": %d, "results": [' "$(quoted "$commit")" "$(quoted "${gpu:-}")" "$SECONDS"
    for line in "${results[@]}"; do
      IFS=$'\t' read -r name state text <<<"$line"
      printf '%s\n  {"name": %s, "state": "%s", "text": %s}' "$separator" "$(quoted "$name")" "$state" "$(quoted "$text")"
      separator=,
    done
    printf '\n]}\n'
  } >"$file"
  [[ -n ${gpu:-} ]] || code=77
  printf '\n%s | commit %s | %d s | %s\n' "${gpu:-${no_gpu:-no GPU}}" "$commit" "$SECONDS" "$file"
  for line in "${results[@]}"; do
    IFS=$'\t' read -r name state text <<<"$line"
    printf '%-36s %-8s %s\n' "$name" "$state" "$text"
    [[ $state != FAILED ]] || code=1
  done
  exit $code
}

# begin FILE: from now on the script ends with `finish FILE`, even if interrupted.
begin() {
  # shellcheck disable=SC2064  # the file is known now
  trap "finish '$1'" EXIT
  trap 'add "the script" FAILED "interrupted"; [[ -z $running ]] || kill "$running" 2>/dev/null; exit 1' INT TERM HUP
  find_gpu
  find_nccl
  find_cublaslt
}
