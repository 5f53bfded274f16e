"""How much of the machine this process may use, read from the system without further packages."""

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

_V2 = "0"  # number of the unified hierarchy in /proc/self/cgroup
_ROOT = Path("/")


@dataclass(frozen=True)
class Cores:
    """Processors of the machine and the limits of this process; None: there is no such limit, or it is unknown."""

    machine: int
    """Processors that the system shows, hyper-threads included."""
    allowed: int
    """Those that the process may run on (CPU affinity: `taskset`, batch systems, cpusets of containers)."""
    physical: int | None = None
    """Physical cores among the allowed processors."""
    quota: float | None = None
    """Processors' worth of time that the control group may use (`docker run --cpus`, Kubernetes limits)."""

    @property
    def limited(self) -> bool:
        """Whether the process may use less than the machine has."""
        return self.allowed < self.machine or (self.quota is not None and self.quota < self.machine)

    @property
    def threads(self) -> int:
        """The number of threads that compute fastest: one per physical core, and never more than the quota pays for,
        since a group that has used up its time stands still until the next period."""
        threads = self.physical or self.allowed
        return threads if self.quota is None else max(1, min(threads, math.floor(self.quota)))


def read_cores(root: Path = _ROOT) -> Cores:
    """Read the limits of this process; `root` is the root of the file system."""
    machine = os.cpu_count() or 1
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(machine))
    return Cores(machine, len(affinity), _physical(affinity, root), cgroup_quota(root))


def cgroup_quota(root: Path = _ROOT) -> float | None:
    """The smallest CPU quota, in processors, of the process's control group and its parents, in version 1 and 2."""
    quotas = []
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == _V2 and not controllers:
            quotas += [_quota_v2(folder) for folder in _with_parents(root / "sys/fs/cgroup", path)]
        elif "cpu" in controllers.split(","):
            for mount in {controllers, "cpu"}:
                quotas += [_quota_v1(folder) for folder in _with_parents(root / "sys/fs/cgroup" / mount, path)]
    return min((quota for quota in quotas if quota is not None), default=None)


def busy_cores() -> float | None:
    """Mean number of processors in use or wanted in the last minute; None where the system does not say."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None


def _with_parents(mount: Path, path: str) -> list[Path]:
    """The group's folder and those above it. In a container without its own namespace only the mount itself exists."""
    group = mount / path.lstrip("/")
    return [folder for folder in (group, *group.parents) if folder == mount or mount in folder.parents]


def _quota_v2(folder: Path) -> float | None:
    match = re.fullmatch(r"(\d+) (\d+)", (_text(folder / "cpu.max") or "").strip())  # "max 100000": no limit
    return _ratio(*match.groups()) if match else None


def _quota_v1(folder: Path) -> float | None:
    quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
    return _ratio(quota.strip(), period.strip()) if quota and period else None


def _ratio(quota: str, period: str) -> float | None:
    """Quota per period; version 1 has a quota of -1 where there is no limit."""
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(quota) * int(period) else None


def _physical(processors: set[int], root: Path) -> int | None:
    """Number of cores that the processors belong to: hyper-threads of one core list the same siblings."""
    names = (root / f"sys/devices/system/cpu/cpu{k}/topology/thread_siblings_list" for k in processors)
    siblings = [_text(name) for name in names]
    return len(set(siblings)) if siblings and all(siblings) else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
