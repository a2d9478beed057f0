"""`plan --plot`: each rank's arenas against what it has, and how length and sequences trade."""
import json
import sys

from bench import charts
from bench.flags import Flags

GIB = 1 << 30
ARENA_HEIGHT, REST_HEIGHT = 0.3, 2.0  # inches: of a rank, and of labels and legend
# What is not an arena: taken before the arenas, and left behind them.
BEFORE = {"others_bytes": "others", "driver_bytes": "driver", "reserve_bytes": "reserve"}
GREYS = ["#8c959f", "#afb8c1", "#d0d7de", "#eaeef2"]


def run(_program, args):
    flags = Flags("plan-plot", "", "")
    flags.add_argument("file")
    options = flags.parse(args)
    charts.need("--plot")
    charts.save(draw(json.load(sys.stdin)), options.file, "--plot")
    return 0


def draw(plan):
    """`plan`: {"title", "report": what `plan --json` prints, "curve": [max_num_seqs, largest max_model_len] ...}."""
    ranks = plan["report"]["ranks"]
    heights = [REST_HEIGHT + ARENA_HEIGHT * len(ranks), 3.6]
    drawn = charts.library().figure.Figure(figsize=(8, sum(heights)), layout="constrained")
    drawn.suptitle(plan["title"])
    arenas, curve = drawn.subplots(2, height_ratios=heights)
    draw_arenas(arenas, plan["report"])
    draw_curve(curve, plan["curve"])
    return drawn


def draw_arenas(axes, report):
    """A bar for each rank; a line at its end: what the device has. The limiting category of the limiting rank has an edge."""
    binding = report["binding"]
    labels = [f"rank {rank['rank']}" + (f" (bottleneck: {binding['term']})" if rank["rank"] == binding["rank"] else "")
              for rank in report["ranks"]]
    left = [0.0] * len(labels)
    terms = [term for term in report["ranks"][0]["arenas"] if any(rank["arenas"][term] for rank in report["ranks"])]
    parts = [(name, GREYS[i], [rank[key] for rank in report["ranks"]]) for i, (key, name) in enumerate(BEFORE.items())]
    parts += [(term, charts.color(i), [rank["arenas"][term] for rank in report["ranks"]]) for i, term in enumerate(terms)]
    for name, color, taken in parts:
        widths = [bytes_taken / GIB for bytes_taken in taken]
        if not any(widths):
            continue
        bars = axes.barh(labels, widths, left=left, height=0.6, color=color, label=name)
        if name == binding["term"]:
            bars[[rank["rank"] for rank in report["ranks"]].index(binding["rank"])].set(
                edgecolor="black", linewidth=1.5, zorder=3)
        left = [a + b for a, b in zip(left, widths)]
    caps = [rank["total_bytes"] / GIB for rank in report["ranks"]]
    rows = range(len(labels))
    axes.vlines(caps, [i - 0.4 for i in rows], [i + 0.4 for i in rows], colors="#cf222e", linewidth=2, label="cap")
    axes.set(title="Memory of each rank" + ("" if report["fits"] else ": does not fit"), xlabel="GiB")
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def draw_curve(axes, curve):
    """Up to the first point the model's own length is the limit."""
    axes.set(title="Sequences that the KV cache holds at once", xlabel="max_num_seqs", ylabel="largest max_model_len")
    if not curve:
        axes.text(0.5, 0.5, "no sequence fits", ha="center", transform=axes.transAxes)
        return
    axes.plot([1, *(seqs for seqs, _ in curve)], [curve[0][1], *(length for _, length in curve)])
    axes.plot(*zip(*curve), "o", color=charts.color(0), markersize=4)
    for seqs, length in curve:
        axes.annotate(f"{length:,}", (seqs, length), textcoords="offset points", xytext=(3, 5))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.margins(y=0.15)
