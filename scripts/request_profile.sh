#!/usr/bin/env bash
# usage: request_profile.sh [LOG...]   what requests asked for and how long they took, by input length,
# from the request_end lines that `bulkhead serve --log-requests` writes; without LOG from standard input.
set -euo pipefail

grep -ho 'request_end .*' -- "$@" | tr -d '"}' | awk '
  { id = NR
    for (i = 2; i <= NF; ++i) { at = index($i, "="); value[substr($i, 1, at - 1)] = substr($i, at + 1) }
    ok = value["status"] != "abort" && value["status"] != "error"
    bucket = 1
    while (bucket < value["input_tokens"] + 0) bucket *= 4
    print bucket, ok, value["input_tokens"], value["output_tokens"], value["cached_tokens"], value["queue_ms"], value["ttft_ms"], value["e2e_ms"] }
' | sort -n -k1,1 | awk '
  function quantile(values, count, q,   at, i, j, sorted, x) {
    if (count == 0) return "-"
    for (i = 1; i <= count; ++i) sorted[i] = values[i]
    sort_numbers(sorted, count)
    at = int(q * count); if (at < q * count) ++at
    return sorted[at < 1 ? 1 : at]
  }
  # Heap sort: no asort in every awk.
  function sort_numbers(a, n,   i, x) {
    for (i = int(n / 2); i >= 1; --i) sift(a, i, n)
    for (i = n; i > 1; --i) { x = a[1]; a[1] = a[i]; a[i] = x; sift(a, 1, i - 1) }
  }
  function sift(a, i, n,   child, x) {
    while ((child = 2 * i) <= n) {
      if (child < n && a[child + 1] + 0 > a[child] + 0) ++child
      if (a[i] + 0 >= a[child] + 0) return
      x = a[i]; a[i] = a[child]; a[child] = x; i = child
    }
  }
  function flush_bucket() {
    if (total == 0) return
    printf "%9s %8d %6d %7.1f", "<=" bucket, total, total - count, input == 0 ? 0 : 100 * cached / input
    printf " %8s %8s", quantile(output, count, .5), quantile(output, count, .99)
    printf " %9s %9s", quantile(queue, count, .5), quantile(queue, count, .99)
    printf " %9s %9s", quantile(first, count, .5), quantile(first, count, .99)
    printf " %9s %9s\n", quantile(all, count, .5), quantile(all, count, .99)
    total = count = cached = input = 0
  }
  BEGIN {
    print "    input requests failed cached%  output p50, p99     queue ms p50, p99      TTFT ms p50, p99       e2e ms p50, p99"
  }
  $1 != bucket { flush_bucket(); bucket = $1 }
  { ++total; if ($2) { ++count; input += $3; cached += $5; output[count] = $4; queue[count] = $6; first[count] = $7; all[count] = $8 } }
  END { if (NR == 0) { print "no request_end lines: start the server with --log-requests" > "/dev/stderr"; exit 1 } flush_bucket() }'
