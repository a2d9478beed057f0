"""What the program measured as tables, JSON, pages and charts; the program starts it as
`python3 tools/bench PROGRAM COMMAND ARGUMENTS...`, where PROGRAM is its own path."""
import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # where `bench` is a package

from bench import cli  # noqa: E402

if __name__ == "__main__":
    sys.exit(cli.main(*sys.argv[1:]))
