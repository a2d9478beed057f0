"""Flags as the program reads them: --a_b is --a-b, nothing is abbreviated, a wrong one ends with exit code 2."""
import argparse
import difflib

from bench.ends import USAGE, Failure


class Flags(argparse.ArgumentParser):
    def __init__(self, command, usage, summary, examples=()):
        super().__init__(prog=f"bulkhead bench {command}", usage=f"bulkhead bench {command} {usage}",
                         description=summary, epilog="\n".join(["Examples:", *("  " + e for e in examples)]),
                         formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)

    def error(self, message):
        raise Failure(message, USAGE)

    def parse(self, args):
        """All of `args`."""
        options, rest = self.split(args)
        if rest:
            names = [name for action in self._actions for name in action.option_strings]
            near = difflib.get_close_matches(rest[0], names, 1)
            raise Failure(f"{rest[0]} is not known" + (f"; did you mean {near[0]}?" if near else ""), USAGE)
        return options

    def split(self, args):
        """Our own flags, and what is left, in its order."""
        return self.parse_known_args([plain(word) for word in args])


def plain(word):
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value if word.startswith("--") else word


def number(text):
    """A whole number as the program understands it: 32k is 10^3, 32K 2^10."""
    factor = {"k": 1000, "K": 1024}.get(text[-1:], 1)
    return int(text if factor == 1 else text[:-1]) * factor


def numbers(text):
    """A list of them, from 1 on."""
    values = [number(part) for part in text.split(",")]
    if min(values) < 1:
        raise ValueError(text)
    return values


numbers.__name__ = "list of whole numbers from 1 on"  # what argparse calls it
