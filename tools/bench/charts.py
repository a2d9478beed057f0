"""Charts by matplotlib, and pages that hold them as inline SVG: no script, no font and no picture from elsewhere."""
import html
import io
import re

from bench.ends import USAGE, Failure

COLORS = ["#1f6feb", "#d1570a", "#2da44e", "#8250df", "#bf3989", "#9a6700", "#57606a", "#0f8b8d"]
STYLE = """body{font:14px/1.4 sans-serif;margin:0;color:#1f2328}main{max-width:1300px;margin:auto;padding:1em}
.charts{display:flex;flex-wrap:wrap;gap:1em}svg{width:620px;max-width:100%;height:auto}
table{border-collapse:collapse;margin:1em 0}td,th{border-bottom:1px solid #d0d7de;padding:2px 10px;text-align:left}
pre{background:#f6f8fa;padding:1em;overflow:auto}.bad{background:#ffebe9;padding:.5em}"""


def library():
    """matplotlib, or None where it is not installed."""
    try:
        import matplotlib.figure  # pylint: disable=import-outside-toplevel
    except ImportError:
        return None
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "bulkhead", "font.size": 9,
                                "axes.prop_cycle": matplotlib.cycler(color=COLORS), "axes.grid": True,
                                "grid.color": "#e5e5e5", "axes.axisbelow": True, "axes.spines.top": False,
                                "axes.spines.right": False, "legend.frameon": False})
    return matplotlib


def figure(title, x_label, y_label, size=(6.4, 3.2)):
    """A figure with one pair of axes."""
    drawn = library().figure.Figure(figsize=size, layout="constrained")
    axes = drawn.subplots()
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    return drawn, axes


def save(drawn, path, flag):
    """By the ending of `path`, which is the value of `flag`: .svg, .png or .pdf."""
    ending = path.rpartition(".")[2].lower()
    if ending not in ("svg", "png", "pdf"):
        raise Failure(f"{flag} {path}: give a name that ends in .svg, .png or .pdf", USAGE)
    try:
        drawn.savefig(path, dpi=150)
    except OSError as error:
        raise Failure(f"cannot write {flag} {path}: {error.strerror}", USAGE) from error


def need(flag):
    if library() is None:
        raise Failure(f"{flag} needs matplotlib: apt install python3-matplotlib", USAGE)


def svg(drawn):
    """The figure as an element of a page."""
    text = io.StringIO()
    drawn.savefig(text, format="svg", metadata={"Date": None})
    element = text.getvalue()[text.getvalue().index("<svg"):]
    return re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)


def lines(title, x_label, y_label, series, log=False):
    """`series`: {name: (xs, ys)}; a name that begins with "." has dots instead of a line. Axes begin at 0, or are
    logarithmic."""
    drawn, axes = figure(title, x_label, y_label)
    for name, (xs, ys) in series.items():
        dots = name.startswith(".")
        axes.plot(xs, ys, "o" if dots else "-", markersize=3, label=name.lstrip("."))
    if log:
        axes.set(xscale="log", yscale="log")
        from matplotlib.ticker import LogFormatter  # pylint: disable=import-outside-toplevel
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(LogFormatter())
            axis.set_minor_formatter(LogFormatter())
    else:
        axes.set_xlim(0, 1.05 * max((max(xs, default=0) for xs, _ in series.values())) or 1)
        axes.set_ylim(0, 1.05 * max((max(ys, default=0) for _, ys in series.values())) or 1)
    if len(series) > 1:
        axes.legend()
    return drawn, axes


def stacked_bars(title, x_label, bars, names):
    """Horizontal bars, each divided into parts. `bars`: {label: {name: value}}."""
    drawn, axes = figure(title, x_label, "", (6.4, 1.8 + 0.3 * len(bars)))
    left = [0.0] * len(bars)
    for i, name in enumerate(names):
        values = [parts.get(name, 0) for parts in bars.values()]
        axes.barh(list(bars), values, left=left, height=0.6, label=name, color=color(i))
        left = [a + b for a, b in zip(left, values)]
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return drawn, axes


def color(i):
    return COLORS[i % len(COLORS)] + ("" if i < len(COLORS) else "90")


def page(title, body):
    return ("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
            f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body><main>\n"
            f"<h1>{html.escape(title)}</h1>\n{body}</main></body></html>\n")


def html_table(rows):
    """The first row is its head."""
    def cells(row, tag):
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in row) + "</tr>\n"

    return "<table>\n" + cells(rows[0], "th") + "".join(cells(row, "td") for row in rows[1:]) + "</table>\n"
