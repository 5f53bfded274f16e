"""How the network's threads share the machine with other programs; decided here, before torch is imported.

Torch computes with OpenMP threads. By default they spin while they wait for each other, which costs nothing on an idle
machine; beside another busy process the thread that would finish a step is not running while its siblings burn its
time, and a prediction takes ten times as long. Threads that wait passively take the same time on a quiet machine. The
OpenMP library reads its environment once, when torch is imported, so `import histolumen` sets it.

Whatever the user has set in the environment stays. If torch was imported first, only processes started later follow.
"""

import os
import sys

from histolumen.cores import read_cores

COUNT = "OMP_NUM_THREADS"
_WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}  # any OpenMP; the one of LLVM and Intel needs both
_SPINNING = ("GOMP_SPINCOUNT", "KMP_LIBRARY")  # further ways in which a user chooses how threads wait
_chosen = COUNT in os.environ


def prepare() -> None:
    """Let threads wait passively, and follow a limit on processors, unless the environment says otherwise.

    Without a limit the number of threads is left to torch. Called by `import histolumen`.
    """
    if not any(name in os.environ for name in (*_WAITING, *_SPINNING)):
        os.environ.update(_WAITING)
    cores = read_cores()
    if not _chosen and cores.limited:
        os.environ[COUNT] = str(cores.threads)


def choose(threads: int) -> None:
    """Use this number of threads in every process, whatever the limits: `--threads`."""
    global _chosen  # noqa: PLW0603 - like the environment, of the whole process
    _chosen = True
    _use(threads)


def share_among(processes: int) -> int:
    """The number of threads for each of several processes on this machine: chosen by the user, or an equal share."""
    number = os.environ.get(COUNT, "").split(",")[0].strip()  # a list has one number per level of nested threads
    if _chosen and number.isdecimal() and int(number) > 0:
        return int(number)
    return max(1, read_cores().threads // max(1, processes))


def divide_among(processes: int) -> None:
    """Use an equal share of the processors in this process and in those that it starts."""
    _use(share_among(processes))


def waiting() -> str:
    """How threads wait, as the environment says."""
    policy = os.environ.get("OMP_WAIT_POLICY", "not set").lower()
    return "passively" if policy == "passive" else f"as OMP_WAIT_POLICY says ({policy})"


def _use(threads: int) -> None:
    os.environ[COUNT] = str(threads)
    if (torch := sys.modules.get("torch")) is not None:  # which has read the environment already
        torch.set_num_threads(threads)
