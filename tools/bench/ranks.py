"""What each rank measured of itself: a row per rank, and the rank that the others wait for."""
from bench.text import bytes_text, clock, percent, table

KINDS = ("decode", "prefill")


def _share(part, whole):
    return part / whole if whole > 0 else 0


def _compute_s(totals):
    return totals["total_s"] - totals["comm_s"]


def skew(ranks, kind):
    """The rank that computes longest, and by how much more than the mean."""
    seconds = [_compute_s(rank[kind]) for rank in ranks]
    slowest = max(range(len(ranks)), key=seconds.__getitem__, default=0)
    mean = sum(seconds) / len(seconds) if seconds else 0
    return slowest, seconds[slowest] / mean - 1 if mean > 0 else 0


def comm_share(ranks, kind):
    """Time in sums and gathers over time in steps, of all ranks together; 0 of no step."""
    return _share(sum(rank[kind]["comm_s"] for rank in ranks), sum(rank[kind]["total_s"] for rank in ranks))


def ranks_json(ranks):
    def means(totals):
        steps = totals["steps"]
        return {"steps": steps, "step_ms": 1e3 * _share(totals["total_s"], steps),
                "compute_ms": 1e3 * _share(_compute_s(totals), steps),
                "comm_share": _share(totals["comm_s"], totals["total_s"]), "longest_ms": 1e3 * totals["longest_s"]}

    json = {"ranks": [{**rank, **{kind: means(rank[kind]) for kind in KINDS}} for rank in ranks]}
    for kind in KINDS:
        slowest, excess = skew(ranks, kind)
        json[kind] = {"slowest_rank": slowest, "slowest_excess": excess, "comm_share": comm_share(ranks, kind)}
    return json


def ranks_table(ranks):
    def cells(totals):
        steps = totals["steps"]
        return ["-"] * 3 if steps == 0 else [
            f"{1e3 * totals['total_s'] / steps:.3f}", f"{1e3 * _compute_s(totals) / steps:.3f}",
            percent(_share(totals["comm_s"], totals["total_s"]))]

    rows = [["rank", "host", "loaded in s", "read", "peak resident", "clock us", "decode ms/step", "compute ms", "comm",
             "prefill ms/step", "compute ms", "comm"]]
    for rank in ranks:
        rows.append([str(rank["rank"]), rank["host"], f"{rank['load_s']:.2f}", bytes_text(rank["load_bytes"]),
                     bytes_text(rank["resident_bytes_peak"]), clock(rank["clock_offset_us"], rank["clock_error_us"]),
                     *cells(rank["decode"]), *cells(rank["prefill"])])
    text = table(rows)
    for kind in KINDS:
        if len(ranks) > 1 and ranks[0][kind]["steps"] > 0:
            slowest, excess = skew(ranks, kind)
            text += (f"{kind}: rank {slowest} ({ranks[slowest]['host']}) is the slowest, it computes "
                     f"{percent(excess)} longer than the mean\n")
    return text
