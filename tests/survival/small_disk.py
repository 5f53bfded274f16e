"""Train on a real disk that is full, then read-only, then large enough; run it in a mount namespace: unshare -rm.

Usage: unshare -rm python tests/survival/small_disk.py
"""

import subprocess
import sys
import tempfile
from pathlib import Path

here = Path(__file__).parents[1]
sys.path[:0] = [str(here), str(here / "slides")]

from interrupting import Interruption, in_a_fork, run  # noqa: E402 - needs the path
from scenarios import SCENARIOS  # noqa: E402
from states import outcome, read_everything  # noqa: E402


def mount(*options: str) -> None:
    """Change the disk at the mount point."""
    subprocess.run(["mount", *options], check=True)


def main() -> None:
    """Print the exit code and the message of each call; raise if something was lost."""
    scenario = SCENARIOS["train"]
    with tempfile.TemporaryDirectory(prefix="small-disk-") as root:
        inputs, disk = Path(root) / "inputs", Path(root) / "disk"
        inputs.mkdir()
        disk.mkdir()
        in_a_fork(lambda: scenario.make(inputs))
        assert run(scenario.command(inputs, Path(root) / "memory" / "run"), Interruption(())).code == 0
        size = sum(path.stat().st_size for path in (Path(root) / "memory" / "run").rglob("*") if path.is_file())
        mount("-t", "tmpfs", "-o", f"size={size // 1024}k", "tmpfs", str(disk))  # no room for two versions of last/
        out, known = disk / "run", set[Path]()
        try:
            for name, code, change in (
                ("full", 2, ()),
                ("read-only", 2, ("-o", "remount,ro")),
                ("large enough", 0, ("-o", "remount,rw,size=100m")),
            ):
                if change:
                    mount(*change, str(disk))
                ended = run([*scenario.command(inputs, out), "--resume"], Interruption(()))
                print(f"{name}: exit code {ended.code}: {ended.messages.strip().splitlines()[-1]}", flush=True)
                assert ended.code == code, ended.messages
                assert "Traceback" not in ended.messages, ended.messages
                if code == 0:
                    read_everything(out, known)
                    assert outcome(out) == outcome(Path(root) / "memory" / "run")
                elif (out / "last").exists():
                    read_everything(out, known) if name != "read-only" else None
        finally:
            subprocess.run(["umount", str(disk)], check=False)


if __name__ == "__main__":
    main()
