"""Limits of the process, from made-up system files: CPU quotas of both versions of control groups, hyper-threads."""

import os

import pytest

from histolumen.cores import Cores, busy_cores, cgroup_quota, read_cores


def system(root, files: dict[str, str]):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        # the group itself has no limit, the one above it has
        (
            {
                "proc/self/cgroup": "0::/pod/app\n",
                "sys/fs/cgroup/pod/app/cpu.max": "max 100000",
                "sys/fs/cgroup/pod/cpu.max": "400000 100000",
            },
            4.0,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/job\n",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
        # in a container without a namespace of its own, the path is the host's and only the mount exists
        (
            {
                "proc/self/cgroup": "3:cpu:/docker/abc\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            2.0,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            None,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "rubbish"}, None),
    ],
)
def test_the_quota_of_the_control_group(tmp_path, files, quota):
    assert cgroup_quota(system(tmp_path, files)) == quota


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no CPU affinity")
def test_hyper_threads_of_one_core_count_once(tmp_path):
    allowed = os.sched_getaffinity(0)
    siblings = f"{min(allowed)},{max(allowed)}\n"
    files = {f"sys/devices/system/cpu/cpu{k}/topology/thread_siblings_list": siblings for k in allowed}
    assert read_cores(system(tmp_path, files)).physical == 1
    assert read_cores(tmp_path / "nothing").physical is None


@pytest.mark.parametrize(
    ("cores", "limited", "threads"),
    [
        (Cores(16, 16, 8), False, 8),
        (Cores(16, 4, 4), True, 4),
        (Cores(16, 16, 8, 3.7), True, 3),
        (Cores(16, 16, 8, 0.5), True, 1),
        (Cores(4, 4, None, 8.0), False, 4),
    ],
)
def test_threads_follow_the_strictest_limit(cores, limited, threads):
    assert (cores.limited, cores.threads) == (limited, threads)


def test_the_load_of_this_machine_is_known_or_unknown():
    load = busy_cores()
    assert load is None or load >= 0
