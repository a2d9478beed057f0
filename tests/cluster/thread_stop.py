"""Stops one thread of a process as a debugger does: what a thread looks like that hangs in a step while the rest of its
process lives on."""
import ctypes
import os
import signal

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000  # waitpid: threads, too
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long


def _ptrace(request, thread):
    if LIBC.ptrace(request, thread, None, None) != 0:
        raise OSError(ctypes.get_errno(), f"ptrace request {request:#x} of thread {thread}")


class StoppedThread:
    """The thread stands still for as long as the context lasts, or its process. To be used on one thread alone: only the
    tracer may wait for it."""

    def __init__(self, thread):
        self.thread = thread
        self.ended = False

    def __enter__(self):
        _ptrace(SEIZE, self.thread)
        _ptrace(INTERRUPT, self.thread)
        _, status = os.waitpid(self.thread, WALL)
        assert os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGTRAP, status
        return self

    def reap(self, how=os.WNOHANG):
        """To be called all the time: a process that has ended does so for its parent only when its tracer knows."""
        while not self.ended:
            found, status = os.waitpid(self.thread, WALL | how)
            if found == 0:
                return
            self.ended = not os.WIFSTOPPED(status)

    def __exit__(self, *error):
        self.reap()
        if self.ended:
            return
        try:
            _ptrace(DETACH, self.thread)
        except ProcessLookupError:
            self.reap(0)  # it is ending
