"""The memory of a machine and of control groups, from made-up system files."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetero.base.machine import DeviceMemory, host_memory

GIB = 1 << 30


def write(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


MEMINFO = {"proc/meminfo": f"MemTotal: {8 * GIB // 1024} kB\nMemFree: 5 kB\nMemAvailable: {6 * GIB // 1024} kB\n"}
V2 = "sys/fs/cgroup/app/job"
V1 = "sys/fs/cgroup/memory/docker/abc"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, DeviceMemory(8 * GIB, 6 * GIB)),
        ({"proc/self/cgroup": "0::/app/job\n"}, DeviceMemory(8 * GIB, 6 * GIB)),  # the files are not visible
        (
            {
                "proc/self/cgroup": "0::/app/job\n",
                f"{V2}/memory.max": f"{2 * GIB}\n",
                f"{V2}/memory.current": f"{GIB}\n",
                f"{V2}/memory.stat": f"anon 5\ninactive_file {GIB // 2}\n",
            },
            DeviceMemory(2 * GIB, 2 * GIB - GIB // 2),
        ),
        (
            {
                "proc/self/cgroup": "0::/app/job\n",
                f"{V2}/memory.max": "max\n",
                f"{V2}/memory.current": f"{GIB}\n",
                "sys/fs/cgroup/app/memory.max": f"{3 * GIB}\n",  # of an outer group
                "sys/fs/cgroup/app/memory.current": f"{2 * GIB}\n",
            },
            DeviceMemory(3 * GIB, GIB),
        ),
        (
            {
                "proc/self/cgroup": "5:cpu:/x\n4:memory:/docker/abc\n0::/\n",
                f"{V1}/memory.limit_in_bytes": f"{4 * GIB}",
                f"{V1}/memory.usage_in_bytes": f"{5 * GIB}",  # above the limit for a moment
                f"{V1}/memory.stat": f"inactive_file 0\ntotal_inactive_file {GIB // 4}\n",
            },
            DeviceMemory(4 * GIB, 0),
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/docker/abc\n",  # a container that sees its own group as the root
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{4 * GIB}",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}",
            },
            DeviceMemory(4 * GIB, 3 * GIB),
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2**63 - 4096),  # v1's unlimited
                "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}",
            },
            DeviceMemory(8 * GIB, 6 * GIB),
        ),
        ({"proc/self/cgroup": "nonsense\n0::/../../etc\n"}, DeviceMemory(8 * GIB, 6 * GIB)),
    ],
)
def test_limits(tmp_path: Path, files: dict[str, str], expected: DeviceMemory) -> None:
    assert host_memory(write(tmp_path, {**MEMINFO, **files})) == expected


def test_this_machine(tmp_path: Path) -> None:
    memory = host_memory()
    assert memory is not None
    assert memory.total > 0
    assert memory.free is None or 0 <= memory.free <= memory.total
    without = host_memory(str(tmp_path))  # no /proc: what the system says otherwise
    assert without is None or without.free is None
