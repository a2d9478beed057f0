#!/usr/bin/env python3
"""Draws docs/architecture.svg: draw_architecture.py [FILE]."""
import os
import sys

INK, GREY = "#1f2933", "#52606d"
BLUE, GREEN, AMBER, RED, PLAIN = (("#eef4ff", "#4c6fff"), ("#f3f9f1", "#3f9142"), ("#fff7e6", "#d98b00"),
                                  ("#fdecef", "#c2334d"), ("#ffffff", "#9aa5b1"))


class Picture:
    def __init__(self, width, height):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="system-ui, Helvetica, Arial, sans-serif"><defs><marker id="a" markerWidth="9" '
            f'markerHeight="9" refX="8" refY="4" orient="auto"><path d="M0 0 L9 4 L0 8 z" fill="{GREY}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>']

    def box(self, x, y, width, height, colours, title="", lines=(), dashed=False, fill=None):
        """Title and lines from the top, in the middle."""
        dashes = ' stroke-dasharray="6 4"' if dashed else ""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="{fill or colours[0]}" '
                          f'stroke="{colours[1]}" stroke-width="1.5"{dashes}/>')
        at = y + 21
        if title:
            self.text(x + width / 2, at, title, 14, True)
            at += 18
        for line in lines:
            self.text(x + width / 2, at, line, 12)
            at += 16

    def text(self, x, y, text, size=12, bold=False, anchor="middle", colour=INK):
        weight = "bold" if bold else "normal"
        self.parts.append(f'<text x="{x:g}" y="{y}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
                          f'fill="{colour}">{text}</text>')

    def arrow(self, x1, y1, x2, y2):
        self.parts.append(f'<path d="M{x1} {y1} L{x2} {y2}" stroke="{GREY}" stroke-width="1.6" fill="none" '
                          'marker-end="url(#a)"/>')

    def svg(self):
        return "\n".join(self.parts) + "</svg>\n"


def rank(picture, x, name):
    picture.box(x, 306, 232, 216, GREEN, name)
    picture.box(x + 10, 334, 212, 50, GREEN, "runtime/model/", ["the forward pass; shard/: its part"], fill="#ffffff")
    picture.box(x + 10, 389, 212, 50, GREEN, "kernels/", ["cpu/ on cores, cuda/ on a GPU"], fill="#ffffff")
    picture.box(x + 10, 444, 212, 68, GREEN, "memory/", ["a ledger of this device alone:", "weights, KV, all else; sealed"],
                fill="#e3f1df")
    picture.arrow(x + 116, 256, x + 116, 304)
    picture.arrow(x + 116, 522, x + 116, 558)


def coordinator(picture):
    picture.box(250, 20, 780, 158, BLUE)
    picture.text(265, 41, "rank 0 also coordinates", 13, True, "start", "#3451b2")
    parts = [("runtime/service/", ["gRPC of proto/: checks,", "limits; runtime/chat/"]),
             ("Coordinator", ["inbox, streams;", "runtime/tokenizer/"]),
             ("Scheduler", ["pure: admits, plans,", "reuses prefixes"]),
             ("Sampler", ["whole rows on the host,", "or a GPU&#8217;s candidates;", "runtime/structured/"])]
    for i, (title, lines) in enumerate(parts):
        x = 265 + i * 190
        picture.box(x, 54, 176, 76, BLUE, title, lines, fill="#ffffff")
        if i > 0:
            picture.arrow(x - 14, 92, x - 1, 92)
    picture.text(735, 41, "runtime/engine/", 13, True, "middle", "#3451b2")
    picture.text(640, 156, "max_num_seqs, max_model_len, max_num_batched_tokens: agreed on at start, enforced here", 12.5,
                 colour="#3451b2")


def main():
    picture = Picture(1050, 690)
    picture.box(20, 20, 190, 110, PLAIN, "clients", ["any gRPC client, or", "launcher/clients/: generate,", "doctor, limits, drain;",
                                                      "launcher/bench/serve/"])
    coordinator(picture)
    picture.arrow(210, 92, 263, 92)
    picture.box(20, 200, 190, 332, PLAIN, "mpirun, srun", [
        "start equal processes,", "one for each device", "",
        "launcher/group/", "serve, run, score: a rank", "from start to its exit code", "",
        "launcher/planning/", "plan: every arena of every", "rank, with no device;", "what fits, and what would", "",
        "launcher/bench/", "groups, kernels, sums", "launcher/flags/"])
    picture.arrow(210, 414, 248, 414)
    picture.arrow(640, 178, 640, 198)
    picture.box(250, 200, 780, 56, AMBER, "ControlBus", ["one numbered StepPlan a step: a tree of hosts' leaders, on each host a "
                                                       "ring in shared memory; idle ranks sleep"])
    picture.box(250, 276, 512, 256, PLAIN, dashed=True, fill="none")
    picture.text(740, 296, "a host", 13, True, "end", GREY)
    picture.box(778, 276, 252, 256, PLAIN, dashed=True, fill="none")
    picture.text(1016, 296, "another host", 13, True, "end", GREY)
    for x, name in ((260, "rank 0"), (520, "rank 1"), (788, "rank N - 1")):
        rank(picture, x, name)
    picture.box(250, 560, 780, 74, RED, "comm/: Communicator", [
        "CPUs: shared memory within a host, MPI between hosts, one fixed tree: equal bits at 1, 2, 4 and 8 ranks",
        "GPUs: NCCL, or staged through host memory"])
    picture.text(640, 664, "who may include whom:  launcher &#8594; runtime &#8594; { kernels, comm, shard } &#8594; memory &#8594; base/", 13,
                 colour=GREY)
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "architecture.svg")
    with open(path, "w", encoding="utf-8") as f:
        f.write(picture.svg())


if __name__ == "__main__":
    main()
