#!/usr/bin/env bash
# Build the package, install it with its dependencies into an empty environment, as a wheel and from the folder, and run
# the first step of the demo there. Takes minutes and 1.5 GB of disk; `make test` has a quick version of it.
#   bash scripts/test_install.sh PYTHON      a Python with the module `build`
set -euo pipefail
cd "$(dirname "$0")/.."
builder=${1:?usage: test_install.sh PYTHON}
builder=$(cd "$(dirname "$builder")" && pwd)/$(basename "$builder")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

mkdir "$folder/clone"
cp -r pyproject.toml constraints.txt README.md LICENSE scripts src "$folder/clone"
cd "$folder/clone"
"$builder" -m build --outdir "$folder/dist" .
wheel=$(ls "$folder"/dist/*.whl)

PACKAGE="$wheel" bash scripts/install.sh "$folder/venv"
first_step() {
  (
    cd "$folder"
    unset PYTHONPATH
    venv/bin/python -m pip check
    venv/bin/histolumen data synthetic "$1" --images 12
    venv/bin/histolumen recipes >/dev/null
    test -f "$1/manifest.csv"
  )
}
first_step from-wheel
"$folder/venv/bin/python" -m pip -q install --force-reinstall --no-deps .
first_step from-clone
echo "installed from $(basename "$wheel") and from the folder"
