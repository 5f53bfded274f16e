"""Shell completion: scripts for every shell, and completions of commands and options."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).parent / "histolumen"


def complete(tmp_path: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=os.environ | {"HOME": str(tmp_path)} | environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_the_script_of_a_named_shell_is_printed(tmp_path, shell):
    result = complete(tmp_path, str(COMMAND), _HISTOLUMEN_COMPLETE=f"source_{shell}")
    assert result.returncode == 0, result.stderr
    assert f"complete_{shell}" in result.stdout


@pytest.mark.parametrize(
    ("words", "found"),
    [("histolumen pre", "predict"), ("histolumen predict --thr", "--threshold"), ("histolumen data syn", "synthetic")],
)
def test_commands_and_options_are_completed(tmp_path, words, found):
    position = str(len(words.split()) - 1)
    result = complete(
        tmp_path, str(COMMAND), _HISTOLUMEN_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=position
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [found]


def test_the_current_shell_is_found_and_its_completion_installed(tmp_path):
    shown = complete(tmp_path, "bash", "-c", f"{COMMAND} --show-completion; exit $?")
    assert shown.returncode == 0, shown.stderr
    assert "complete -o default -F _histolumen_completion histolumen" in shown.stdout
    installed = complete(tmp_path, "bash", "-c", f"{COMMAND} --install-completion; exit $?")
    assert installed.returncode == 0, installed.stderr
    assert (tmp_path / ".bashrc").read_text().strip().endswith("histolumen.sh'")
    written = list(tmp_path.rglob("histolumen.sh"))
    assert len(written) == 1
    assert "complete_bash" in written[0].read_text()
