#!/usr/bin/env bash
# Make a virtual environment with histolumen and its tools in it.
#   bash scripts/install.sh VENV        PYTHON=..., TORCH=... and PACKAGE=... are optional
# PACKAGE is what pip installs: by default this folder, editable, with all extras.
# torch comes first and by itself: as the CPU build where one is within reach, as the platform's own build where that
# has no CUDA in it (macOS, Windows) or where there is a GPU to use it. Gigabytes of CUDA never come by accident.
set -euo pipefail
venv=${1:?usage: install.sh VENV}
python=${PYTHON:-python3}
version=$(sed -n 's/^torch==//p' "$(dirname "$0")/../constraints.txt")
cd "$(dirname "$0")/.."

"$python" - <<'CHECK' || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11" >&2; exit 2; }
import sys
sys.exit(sys.version_info < (3, 11))
CHECK

echo "Installing into $venv (about 1.6 GB on disk; a few minutes the first time)"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip=("$venv/bin/python" -m pip --disable-pip-version-check -q install)

if ! "$venv/bin/python" -c "import torch, sys; sys.exit(not torch.__version__.startswith('$version'))" 2>/dev/null; then
  if [ -n "${TORCH:-}" ]; then
    "${pip[@]}" "$TORCH"
  elif said=$("${pip[@]}" "torch==$version+cpu" 2>&1); then
    :
  elif [ "$(uname -s)" != Linux ] || command -v nvidia-smi >/dev/null; then
    "${pip[@]}" "torch==$version"
  else
    cat >&2 <<HELP
pip said: $(tail -n 1 <<<"$said")
No CPU build of torch $version is within pip's reach, and this machine has no GPU, so the CUDA build (several
gigabytes) was not installed. Either
  - name the CPU wheel index that pytorch.org gives under "Get started":  PIP_EXTRA_INDEX_URL=ADDRESS make setup
  - or take the CUDA build all the same:                                   make setup TORCH=torch==$version
HELP
    exit 2
  fi
fi
if [ -n "${PACKAGE:-}" ]; then
  "${pip[@]}" -c constraints.txt "$PACKAGE"
else
  "${pip[@]}" -c constraints.txt -e '.[dev]'
fi
"$venv/bin/histolumen" --version
