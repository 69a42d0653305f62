#!/usr/bin/env bash
# Each member in an environment of its own: it imports, and its tests pass, with nothing but what it declares.
set -euo pipefail
cd "$(dirname "$0")/.."
uv="$PWD/.venv/bin/uv"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
check() { # member, modules that must be absent, import to try
    local venv="$folder/$1"
    "$uv" venv --quiet --python "$PWD/.venv/bin/python" "$venv"
    "$uv" export --quiet --frozen --no-dev --no-hashes --package "treadle-$1" --no-editable -o "$folder/$1.txt"
    "$uv" pip install --quiet --python "$venv/bin/python" -r "$folder/$1.txt"
    "$venv/bin/python" - "$1" "$2" <<'PY'
import importlib
import importlib.util
import pkgutil
import sys

member, absent = sys.argv[1], sys.argv[2].split()
package = importlib.import_module(f"treadle.{member}")
names = [m.name for m in pkgutil.walk_packages(package.__path__, f"treadle.{member}.") if ".testing" not in m.name]
for name in names:
    importlib.import_module(name)
for name in absent:
    assert importlib.util.find_spec(name) is None, f"{name} is there, and {member} must do without"
print(f"treadle-{member}: {len(names)} modules import by themselves")
PY
}
check primitives "pydantic temporalio typer yaml pyarrow treadle.executors treadle.dsl treadle.orchestrator"
check executors "pydantic temporalio typer yaml pyarrow treadle.dsl treadle.orchestrator"
check dsl "temporalio typer treadle.executors treadle.orchestrator"
check orchestrator "confluent_kafka"
