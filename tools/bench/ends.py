"""How a command ends: as the program's own commands do, with one line on standard error and an exit code."""
import os
import sys

CLIENT_ERROR, USAGE, DOES_NOT_FIT, GROUP_NOT_UP, CANNOT_BIND, BUG = 1, 2, 4, 5, 7, 70
BY_SIGNAL = 128  # and its number


class Failure(Exception):
    def __init__(self, message, code=CLIENT_ERROR):
        super().__init__(message)
        self.code = code


def say(text):
    """Prints `text`, now."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered has a place to go
        raise Failure("cannot write standard output; results are lost") from error


def write(path, text, flag=None):
    """`flag`: whose value `path` is; None: it is a file of ours."""
    try:
        with open(path, "w", encoding="utf-8", errors="replace") as f:
            f.write(text)
    except OSError as error:
        raise Failure(f"cannot write {flag + ' ' if flag else ''}{path}: {error.strerror}",
                      USAGE if flag else CLIENT_ERROR) from error
