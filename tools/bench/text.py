"""Numbers and tables for people."""


def table(rows):
    """Columns as wide as their widest cell, the first one to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "".join("  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))])
                   + "\n" for row in rows)


def bytes_text(count):
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    value, unit = float(count), 0
    while abs(value) >= 1024 and unit + 1 < len(units):
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.1f} {units[unit]}"


def percent(share):
    return f"{100 * share:.1f} %"


def clock(offset_us, error_us):
    return f"{offset_us:+.1f} +- {error_us:.1f}"


def placement(hosts):
    """Where ranks are, by rank: "ranks 0-1 on a, 2-3 on b"; "rank 0 on a"."""
    runs, first = [], 0
    for after in range(1, len(hosts) + 1):
        if after == len(hosts) or hosts[after] != hosts[first]:
            runs.append(f"{first}{f'-{after - 1}' if after > first + 1 else ''} on {hosts[first]}")
            first = after
    return ("rank " if len(hosts) == 1 else "ranks ") + ", ".join(runs)
