"""Whether the tool runs at all; asked before something is measured in vain."""


def run(_program, _args):
    return 0
