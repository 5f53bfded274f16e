"""A folder has one writer at a time; others are told who it is, and a dead writer holds nothing."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from histolumen.errors import DiskError, LockedError
from histolumen.locking import exclusive

HOLD = (
    "import pathlib, sys, time\n"
    "from histolumen.locking import exclusive\n"
    "with exclusive(pathlib.Path(sys.argv[1])):\n"
    "    print('held', flush=True)\n"
    "    time.sleep(60)\n"
)


@pytest.fixture
def holder(tmp_path):
    """Another process that writes to `tmp_path/out`."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path / "out"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_a_second_writer_is_told_host_process_and_start(tmp_path, holder):
    with pytest.raises(LockedError) as refusal, exclusive(tmp_path / "out"):
        pytest.fail("the block must not run")
    message = str(refusal.value)
    assert message.startswith(f"{tmp_path / 'out'}: another process is writing here")
    assert socket.gethostname() in message
    assert f"process {holder.pid}" in message
    assert "since 20" in message


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path, holder):
    holder.kill()
    holder.wait()
    with exclusive(tmp_path / "out"):
        assert f'"process": {os.getpid()}' in (tmp_path / "out" / ".lock.json").read_text()


def test_a_waiting_writer_goes_on_when_the_holder_is_gone(tmp_path, holder):
    messages: list[str] = []

    def said(message: str) -> None:
        messages.append(message)
        holder.kill()

    with exclusive(tmp_path / "out", wait=said):
        assert len(messages) == 1
        assert f"process {holder.pid}" in messages[0]


def test_nothing_is_left_behind(tmp_path):
    with exclusive(tmp_path / "new" / "er"):
        pass
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    with exclusive(tmp_path / "used"):
        pass
    assert [path.name for path in (tmp_path / "used").iterdir()] == ["file"]


def test_an_error_inside_the_block_releases_the_lock(tmp_path):
    with pytest.raises(RuntimeError), exclusive(tmp_path / "out"):
        raise RuntimeError
    with exclusive(tmp_path / "out"):
        pass


def test_threads_of_one_process_exclude_each_other(tmp_path):
    with exclusive(tmp_path), pytest.raises(LockedError), exclusive(tmp_path):
        pytest.fail("the block must not run")


def test_a_place_that_cannot_be_written_is_explained(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DiskError, match="a file stands where a folder is needed"), exclusive(tmp_path / "file" / "x"):
        pytest.fail("the block must not run")
    if Path("/proc/self").is_dir():
        with pytest.raises(DiskError, match="cannot be written"), exclusive(Path("/proc/histolumen")):
            pytest.fail("the block must not run")


def test_an_older_lock_file_without_a_holder_is_no_obstacle(tmp_path):
    (tmp_path / ".lock.json").write_text("nonsense")
    (tmp_path / ".lock").touch()
    with exclusive(tmp_path), pytest.raises(LockedError, match="another process"), exclusive(tmp_path):
        pass
