#!/usr/bin/env bash
# Each member in an environment of its own: it imports, and its tests pass, with nothing but what it declares.
set -euo pipefail
cd "$(dirname "$0")/.."
uv="$PWD/.venv/bin/uv"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fresh=() # a wheel in the cache may be older than its sources
for member in primitives executors dsl orchestrator multiprocessing; do fresh+=(--refresh-package "treadle-$member"); done
check() { # member, modules that must be absent, those that a part may want which comes with an extra
    local venv="$folder/$1"
    "$uv" venv --quiet --python "$PWD/.venv/bin/python" "$venv"
    "$uv" export --quiet --frozen --no-dev --no-hashes --package "treadle-$1" --no-editable -o "$folder/$1.txt"
    "$uv" pip install --quiet --python "$venv/bin/python" "${fresh[@]}" -r "$folder/$1.txt"
    TMPDIR="$folder" "$venv/bin/python" - "$1" "$2" "${3:-}" <<'PY'  # entries of functions make folders for sandboxes
import importlib
import importlib.util
import pkgutil
import sys

member, absent, optional = sys.argv[1], sys.argv[2].split(), sys.argv[3].split()
waiting = []
names = []
for room in ["orchestrator", "client", "triggers", "cli"] if member == "orchestrator" else [member]:
    package = importlib.import_module(f"treadle.{room}")
    names += [m.name for m in pkgutil.walk_packages(package.__path__, f"treadle.{room}.") if ".testing" not in m.name]
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not error.name or error.name.partition(".")[0] not in optional:
            raise
        waiting.append(name)
for name in [*absent, *optional]:
    assert importlib.util.find_spec(name) is None, f"{name} is there, and {member} must do without"
assert not any(".cli." in name for name in waiting), f"commands must not need an extra to be listed: {waiting}"
print(f"treadle-{member}: {len(names) - len(waiting)} modules import by themselves, {len(waiting)} with an extra")
PY
}
check primitives "pydantic temporalio typer yaml pyarrow treadle.executors treadle.dsl treadle.orchestrator"
check multiprocessing "pydantic temporalio typer yaml pyarrow treadle.executors treadle.dsl treadle.orchestrator"
check executors "pydantic temporalio typer yaml pyarrow treadle.dsl treadle.orchestrator" "boto3 botocore httpx confluent_kafka"
check dsl "temporalio typer treadle.executors treadle.orchestrator"
check orchestrator "boto3" "confluent_kafka starlette uvicorn httpx jsonschema joblib"
