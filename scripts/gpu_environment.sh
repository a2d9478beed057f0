# Sourced by gpu_check.sh and gpu_bench.sh, in a bundle or in the source tree: where things are, and the table
# that both end with.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [[ -x $here/bulkhead ]]; then
  bulkhead=$here/bulkhead
  gpu_test=$here/gpu_test
  commit=$(cat "$here/commit")
else
  bulkhead=$here/../build/release/bin/bulkhead
  gpu_test=$here/../build/release/tests/gpu/gpu_test
  commit=$(git -C "$here" rev-parse --short=7 HEAD)
fi
out=${OUT:-$PWD/gpu_results}
mkdir -p "$out"

# NCCL as PyTorch brings it, where the loader does not know one.
if [[ -z ${BULKHEAD_NCCL:-} ]] && command -v python3 >/dev/null; then
  nccl=$(python3 -c 'import importlib.util as u; s = u.find_spec("nvidia.nccl"); print(list(s.submodule_search_locations)[0] + "/lib/libnccl.so.2" if s else "")' 2>/dev/null || true)
  [[ -z $nccl || ! -e $nccl ]] || export BULKHEAD_NCCL=$nccl
fi

gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -n 1 || true)
started=$SECONDS
results=()  # "name<TAB>ok|FAILED|skipped<TAB>what it says"

# add NAME STATE TEXT
add() { results+=("$1"$'\t'"$2"$'\t'"$3"); }

# seconds that are left of the script's own limit, at least 1
left() { local s=$((limit_s - (SECONDS - started))); echo $((s > 1 ? s : 1)); }

# finish FILE: the results as JSON, then as a table; fails when one did.
finish() {
  local file=$out/$1 failed=0 first=true line name state text
  {
    printf '{"commit": "%s", "gpu": "%s", "seconds": %d, "results": [' "$commit" "$gpu" $((SECONDS - started))
    for line in "${results[@]}"; do
      IFS=$'\t' read -r name state text <<<"$line"
      $first || printf ', '
      first=false
      text=${text//\\/\\\\}
      printf '\n  {"name": "%s", "state": "%s", "text": "%s"}' "$name" "$state" "${text//\"/\\\"}"
    done
    printf '\n]}\n'
  } >"$file"
  printf '\n%s | commit %s | %d s | %s\n' "${gpu:-no GPU}" "$commit" $((SECONDS - started)) "$file"
  for line in "${results[@]}"; do
    IFS=$'\t' read -r name state text <<<"$line"
    printf '%-34s %-8s %s\n' "$name" "$state" "$text"
    [[ $state != FAILED ]] || failed=1
  done
  return $failed
}
