"""Writes are complete or have no effect, whenever they are interrupted."""

import errno
import os
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest

from histolumen.atomic import finish_swap, new_file, new_folder, remove_abandoned
from histolumen.errors import DiskError


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def fill(folder: Path, content: str, *, whole: bool = True) -> None:
    """Create a folder of two files that belong together, or only one of them as if half removed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a").write_text(content)
    if whole:
        (folder / "b").write_text(content)


def holds(folder: Path, content: str) -> bool:
    return {path.name: path.read_text() for path in folder.iterdir()} == {"a": content, "b": content}


# --- files


def test_a_new_file_appears_complete_with_its_folders(tmp_path):
    path = tmp_path / "deep" / "er" / "x.txt"
    with new_file(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
        assert temporary.parent == path.parent  # a rename across disks would not be atomic
    assert path.read_text() == "new"
    assert names(path.parent) == {"x.txt"}


def test_an_old_file_is_replaced_only_at_the_end(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("old")
    with new_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_failure_inside_the_block_leaves_the_old_file(tmp_path, failure):
    path = tmp_path / "x.txt"
    path.write_text("old")
    with pytest.raises(failure), new_file(path) as temporary:
        temporary.write_text("half")
        raise failure
    assert path.read_text() == "old"
    assert names(tmp_path) == {"x.txt"}


@pytest.mark.parametrize("new", [new_file, new_folder])
@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EDQUOT, "disk is full"),
        (errno.EACCES, "no permission"),
        (errno.EROFS, "no permission"),
    ],
)
def test_a_disk_that_refuses_is_explained_with_the_path(tmp_path, new, number, advice):
    path = tmp_path / "x"
    with pytest.raises(DiskError, match=f"{path}: .*{advice}"), new(path):
        raise OSError(number, os.strerror(number))
    assert names(tmp_path) == set()


@pytest.mark.parametrize("new", [new_file, new_folder])
def test_other_errors_of_the_system_are_not_called_disk_errors(tmp_path, new):
    with pytest.raises(ConnectionResetError), new(tmp_path / "x"):
        raise ConnectionResetError(errno.ECONNRESET, "reset")


@pytest.mark.parametrize("new", [new_file, new_folder])
def test_a_file_where_a_folder_is_needed_is_explained(tmp_path, new):
    (tmp_path / "file").write_text("old")
    with pytest.raises(DiskError, match="a file stands where a folder is needed"), new(tmp_path / "file" / "x"):
        pytest.fail("the block must not run")
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize("given", ["x", "."])
def test_a_folder_where_a_file_is_needed_is_explained(tmp_path, monkeypatch, given):
    fill(tmp_path / "x", "old")
    monkeypatch.chdir(tmp_path / "x" if given == "." else tmp_path)
    with pytest.raises(DiskError, match="folder"), new_file(Path(given)) as temporary:
        temporary.write_text("new")
    assert holds(tmp_path / "x", "old")
    assert names(tmp_path) == {"x"}


# --- folders


def test_a_new_folder_appears_complete(tmp_path):
    path = tmp_path / "run" / "last"
    with new_folder(path) as temporary:
        fill(temporary, "new")
        assert not path.exists()
    assert holds(path, "new")
    assert names(path.parent) == {"last"}


def test_an_old_folder_is_replaced_completely(tmp_path):
    path = tmp_path / "last"
    fill(path, "old")
    (path / "c").touch()
    with new_folder(path) as temporary:
        fill(temporary, "new")
        assert (path / "c").exists()
    assert holds(path, "new")
    assert names(tmp_path) == {"last"}


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_failure_inside_the_block_leaves_the_old_folder(tmp_path, failure):
    path = tmp_path / "last"
    fill(path, "old")
    with pytest.raises(failure), new_folder(path) as temporary:
        fill(temporary, "half")
        raise failure
    assert holds(path, "old")
    assert names(tmp_path) == {"last"}


# --- interruptions: `.last.new` is complete, `.last.old` is about to be removed

STATES = {
    "before any rename": ({"last": "old"}, "old"),
    "first folder, ready": ({".last.new": "new"}, "new"),
    "ready": ({"last": "old", ".last.new": "new"}, "new"),
    "ready, old one being removed by an interrupted finish_swap": ({"last": "half", ".last.new": "new"}, "new"),
    "old one set aside": ({".last.old": "old", ".last.new": "new"}, "new"),
    "new one in place": ({"last": "new", ".last.old": "old"}, "new"),
    "new one in place, old one half removed": ({"last": "new", ".last.old": "half"}, "new"),
    "old one set aside, new one lost": ({".last.old": "old"}, "old"),
}


def interrupted(root: Path, state: str) -> str:
    """Create the folders of a state; returns the content expected after recovery."""
    folders, expected = STATES[state]
    for name, content in folders.items():
        fill(root / name, content, whole=content != "half")
    return expected


@pytest.mark.parametrize("state", STATES)
def test_finish_swap_repairs_every_state_between_two_renames(tmp_path, state):
    expected = interrupted(tmp_path, state)
    for _ in range(2):  # a second call changes nothing
        finish_swap(tmp_path / "last")
        assert holds(tmp_path / "last", expected)
        assert names(tmp_path) == {"last"}


def test_finish_swap_creates_no_folder(tmp_path):
    finish_swap(tmp_path / "last")
    assert names(tmp_path) == set()


def test_finish_swap_accepts_the_current_folder(tmp_path, monkeypatch):
    """A run may be given as `.`."""
    fill(tmp_path / "last", "old")
    monkeypatch.chdir(tmp_path / "last")
    finish_swap(Path())
    assert holds(tmp_path / "last", "old")


@pytest.mark.parametrize("state", STATES)
def test_new_folder_repairs_an_interrupted_swap_first(tmp_path, state):
    expected = interrupted(tmp_path, state)
    with pytest.raises(RuntimeError), new_folder(tmp_path / "last"):
        raise RuntimeError
    assert holds(tmp_path / "last", expected)
    with new_folder(tmp_path / "last") as temporary:
        fill(temporary, "newer")
    assert holds(tmp_path / "last", "newer")
    assert names(tmp_path) == {"last"}


def test_new_folder_removes_what_a_killed_process_left(tmp_path):
    fill(tmp_path / "last", "old")
    fill(tmp_path / ".last.99999999.tmp", "half", whole=False)
    with new_folder(tmp_path / "last") as temporary:
        fill(temporary, "new")
    assert holds(tmp_path / "last", "new")
    assert names(tmp_path) == {"last"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("renames", [0, 1, 2, 3])
def test_a_process_killed_at_any_rename_leaves_a_complete_folder(tmp_path, first, renames):
    """A child process exits without clean-up after the given number of renames."""
    path = tmp_path / "last"
    if not first:
        fill(path, "old")
    child = os.fork()
    if child == 0:
        try:
            _write_and_exit(path, renames)
        finally:
            os._exit(1)  # must not return to pytest
    assert os.waitpid(child, 0)[1] == 0
    finish_swap(path)
    if renames > 0:
        assert holds(path, "new")
    else:
        assert not path.exists() if first else holds(path, "old")
    assert not {".last.new", ".last.old"} & names(tmp_path)


def _write_and_exit(path: Path, renames: int) -> None:
    real, done = Path.rename, []

    def rename(self: Path, target: Path) -> Path:
        if len(done) == renames:
            os._exit(0)
        done.append(target)
        return real(self, target)

    Path.rename = rename
    with new_folder(path) as temporary:
        fill(temporary, "new")
    os._exit(0)


@pytest.mark.parametrize("renames", [1, 2, 3])
def test_finish_swap_by_a_reader_between_two_renames_does_not_disturb_the_writer(tmp_path, monkeypatch, renames):
    """A model may be used for prediction while it is being trained."""
    path = tmp_path / "last"
    fill(path, "old")
    real, done = Path.rename, []

    def rename(self: Path, target: Path) -> Path:
        moved = real(self, target)
        done.append(target)
        if len(done) == renames:
            finish_swap(path)
        return moved

    monkeypatch.setattr(Path, "rename", rename)
    with new_folder(path) as temporary:
        fill(temporary, "new")
    assert len(done) >= renames
    assert holds(path, "new")
    assert names(tmp_path) == {"last"}


# --- places where no file can be written


@pytest.mark.parametrize("name", ["x" * 240 + ".png", "é" * 120 + ".png"])
def test_a_name_as_long_as_the_disk_allows_is_written(tmp_path, name):
    """The temporary name must not be longer than the final one may be: 255 bytes."""
    with new_file(tmp_path / name) as temporary:
        temporary.write_text("new")
    with new_folder(tmp_path / name[:-4]) as temporary:
        fill(temporary, "new")
    finish_swap(tmp_path / name[:-4])
    assert (tmp_path / name).read_text() == "new"
    assert names(tmp_path) == {name, name[:-4]}


@pytest.mark.parametrize(
    "number", [errno.ENOENT, errno.EINVAL, errno.EIO, errno.ENODEV, errno.ENXIO, errno.EFBIG, errno.ELOOP, errno.ESTALE]
)
@pytest.mark.parametrize("new", [new_file, new_folder])
def test_any_refusal_of_a_file_system_is_explained_with_the_path(tmp_path, new, number):
    path = tmp_path / "x"
    with pytest.raises(DiskError, match=f"{path}: cannot be written"), new(path):
        raise OSError(number, os.strerror(number))
    assert names(tmp_path) == set()


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a pseudo file system")
@pytest.mark.parametrize("new", [new_file, new_folder])
def test_a_pseudo_file_system_is_refused(new):
    with pytest.raises(DiskError, match="/proc/histolumen/x: "), new(Path("/proc/histolumen/x")):
        pytest.fail("the block must not run")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_device_or_pipe_is_never_replaced_by_a_file(tmp_path):
    """Renaming a file over /dev/full would remove the device."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DiskError, match="not a regular file"), new_file(tmp_path / "pipe"):
        pytest.fail("the block must not run")
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
def test_a_disk_without_space_is_explained_and_the_old_file_kept(tmp_path):
    """A limit on the size of files stops the write inside the operating system, as a full disk does."""
    path = tmp_path / "x"
    path.write_text("old")
    code = (
        "import pathlib, resource, sys\n"
        "from histolumen.atomic import new_file\n"
        "from histolumen.errors import DiskError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n"
        "    with new_file(pathlib.Path(sys.argv[1])) as temporary:\n"
        "        temporary.write_bytes(bytes(100_000))\n"
        "except DiskError as error:\n"
        "    print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert f"{path}: cannot be written" in result.stdout, result.stderr
    assert path.read_text() == "old"
    assert names(tmp_path) == {"x"}


def test_temporary_files_of_killed_processes_are_removed_and_nothing_else(tmp_path):
    (tmp_path / "masks").mkdir()
    for name in (".x.png.0123456789ab.tmp", "masks/.y.png.ba9876543210.tmp"):
        (tmp_path / name).touch()
    kept = {".x.tmp", "x.0123456789ab.tmp", ".lock", "x.png", "masks"}
    for name in kept - {"masks"}:
        (tmp_path / name).touch()
    remove_abandoned(tmp_path)
    assert names(tmp_path) == kept
    assert names(tmp_path / "masks") == {".y.png.ba9876543210.tmp"}
    remove_abandoned(tmp_path, below=True)
    assert names(tmp_path / "masks") == set()
    remove_abandoned(tmp_path / "none")


def test_names_of_new_files_are_those_that_are_removed_later(tmp_path):
    with pytest.raises(RuntimeError), new_file(tmp_path / "x.png") as temporary:
        temporary.touch()
        remove_abandoned(tmp_path)
        assert not temporary.exists()
        raise RuntimeError


@pytest.mark.parametrize(
    ("number", "whole"), [(errno.ENOSPC, True), (errno.EROFS, True), (errno.EACCES, False), (errno.EEXIST, False)]
)
def test_a_full_disk_concerns_every_further_file_also_in_another_process(tmp_path, number, whole):
    with pytest.raises(DiskError) as raised, new_file(tmp_path / "x"):
        raise OSError(number, os.strerror(number))
    received = ForkingPickler.loads(ForkingPickler.dumps(raised.value))
    assert (received.whole_disk, str(received)) == (whole, str(raised.value))
