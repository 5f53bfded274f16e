import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from histolumen.view import private_folder
from histolumen.view.private_folder import PrivateFolder

HOLD = """
from histolumen.view.private_folder import PrivateFolder
folder = PrivateFolder()
(folder.path / "patient.png").write_bytes(b"x")
print(folder.path, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """A place of its own instead of /tmp."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_folder_is_private_and_deleted_at_the_end(temporary):
    folder = PrivateFolder()
    (folder.path / "x").write_bytes(b"x")
    [home] = temporary.iterdir()
    assert home.stat().st_mode & 0o777 == 0o700
    folder.close()
    assert list(temporary.iterdir()) == []


def test_what_a_killed_viewer_left_is_deleted_by_the_next_and_a_running_one_is_not_touched(temporary):
    environment = os.environ | {"TMPDIR": str(temporary)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", HOLD], env=environment, **pipes)
    try:
        path = Path(process.stdout.readline().strip())
        PrivateFolder().close()
        assert [each.name for each in path.iterdir()] == ["patient.png"]  # its viewer runs
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert [each.name for each in path.iterdir()] == ["patient.png"]
    folder = PrivateFolder()
    assert not path.exists()
    assert len(list(temporary.iterdir())) == 1
    folder.close()


def test_a_folder_without_lock_is_deleted_when_it_is_old(temporary):
    new, old = temporary / "histolumen-view-new", temporary / "histolumen-view-old"
    new.mkdir()
    old.mkdir()
    os.utime(old, (time.time() - 3600,) * 2)
    PrivateFolder().close()
    assert new.exists()
    assert not old.exists()


def test_links_and_folders_of_others_are_left_alone(temporary, monkeypatch):
    target = temporary / "elsewhere"
    target.mkdir()
    (target / ".lock").touch()
    (temporary / "histolumen-view-link").symlink_to(target)
    foreign = temporary / "histolumen-view-foreign"
    foreign.mkdir()
    (foreign / ".lock").touch()
    monkeypatch.setattr(private_folder.os, "getuid", lambda: foreign.stat().st_uid + 1)
    PrivateFolder().close()
    assert foreign.exists()
    assert target.exists()
