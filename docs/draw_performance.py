#!/usr/bin/env python3
"""Draws docs/performance.svg from the summary table of docs/performance.md: draw_performance.py [FILE]."""
import os
import re
import sys

from draw_architecture import AMBER, BLUE, GREEN, GREY, Picture

DOCS = os.path.dirname(os.path.abspath(__file__))
COLOURS = {"bf16": BLUE, "int8": GREEN, "int4": AMBER}
COLUMNS = (("decode, batch 1", 2), ("decode, batch 16", 4), ("prefill of 512 tokens", 6))
LEFT, BAR_LEFT, COLUMN_WIDTH, ROW_HEIGHT = 24, 310, 230, 18
RATIO_WIDTH = 42  # pixels of a ratio of 1
CELL = re.compile(r"(?:(?:batch )?(\w+): )?([\d.]+)(?: to ([\d.]+))?")


def table(text):
    """The rows of the summary as lists of cells, the machine's link being its name."""
    section = text.split("\n## Beside other engines\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", cell.strip()) for cell in row.strip("|").split("|")]
            for row in rows]


def groups(rows):
    """[(machine, [(shape, weights, engines, cells)])]; what a row leaves out is the row's above."""
    found = []
    for cells in rows:
        names = cells[0].split(", ")
        weights = next(i for i, name in enumerate(names) if name[:4] in COLOURS)
        known = [i for i in range(1, weights) if names[i] in ("S", "M", "8 B", "experts")]
        if names[0] != "the same":
            found.append((", ".join(names[:known[0]]), []))
            shape = ""
        shape = names[known[0]] if known else shape
        engines = cells[1] or engines
        found[-1][1].append((shape, ", ".join(names[weights:]), engines, cells))
    return found


def bar(picture, x, y, cell, colours):
    if not cell:
        return
    number = CELL.match(cell)
    of, least, most = number.groups()
    ratio = (float(least) + float(most or least)) / 2
    picture.parts.append(f'<rect x="{x}" y="{y}" width="{ratio * RATIO_WIDTH:.0f}" height="{ROW_HEIGHT - 6}" rx="2" '
                         f'fill="{colours[1]}" fill-opacity="{1 if ratio >= 1 else 0.45}"/>')
    label = (f"{least} to {most}" if most else least) + (f" (at {of})" if of else "")
    picture.text(x + ratio * RATIO_WIDTH + 5, y + 10, label, 11, anchor="start")


def main():
    with open(os.path.join(DOCS, "performance.md"), encoding="utf-8") as file:
        machines = groups(table(file.read()))
    height = 106 + sum(26 + ROW_HEIGHT * len(rows) for _, rows in machines)
    picture = Picture(BAR_LEFT + 3 * COLUMN_WIDTH, height)
    picture.text(LEFT, 28, "Tokens/s divided by those of the fastest other engine on the same machine", 15, True, "start")
    for i, (weights, colours) in enumerate(COLOURS.items()):
        picture.parts.append(f'<rect x="{LEFT + 70 * i}" y="42" width="12" height="12" rx="2" fill="{colours[1]}"/>')
        picture.text(LEFT + 70 * i + 18, 52, weights, 12, anchor="start")
    picture.text(LEFT + 210, 52, "longer is faster; pale: slower than the other engine; S, M: models with 0.25 and 1.1 billion "
                 "parameters", 11, anchor="start", colour=GREY)
    for i, (title, _) in enumerate(COLUMNS):
        x = BAR_LEFT + COLUMN_WIDTH * i
        picture.text(x, 76, title, 12, True, "start")
        picture.text(x + RATIO_WIDTH, 90, "1", 11, colour=GREY)
        picture.parts.append(f'<path d="M{x + RATIO_WIDTH} 94 V{height - 8}" stroke="{GREY}" stroke-dasharray="3 3"/>')
    y = 96
    for machine, rows in machines:
        y += 20
        picture.text(LEFT, y, machine, 12, True, "start")
        y += 6
        for shape, weights, engines, cells in rows:
            picture.text(LEFT + 8, y + 10, f"{shape}, {weights}", 11, anchor="start")
            picture.text(BAR_LEFT - 12, y + 10, engines, 9.5, anchor="end", colour=GREY)
            for i, (_, column) in enumerate(COLUMNS):
                bar(picture, BAR_LEFT + COLUMN_WIDTH * i, y, cells[column], COLOURS[weights[:4]])
            y += ROW_HEIGHT
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(DOCS, "performance.svg")
    with open(path, "w", encoding="utf-8") as file:
        file.write(picture.svg())


if __name__ == "__main__":
    main()
