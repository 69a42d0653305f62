#!/usr/bin/env bash
# The core of the tests on every supported Python, with the oldest and with the newest dependencies that are declared.
#   pythons.sh matrix    each Python that is found, with both
#   pythons.sh corners   the oldest Python with the oldest, the newest with the newest
set -euo pipefail
cd "$(dirname "$0")/.."
supported=(3.11 3.12 3.13 3.14) # the classifiers of the pyproject files say the same: test_pythons.py
core=(
    tests/dsl tests/orchestrator/planner tests/primitives/formats tests/primitives/encoding/test_codec.py
    tests/executors/test_bundle.py tests/executors/test_code_{digest,digest_imports,digest_order,reach}.py
    tests/examples/test_examples.py tests/libraries/test_{files,state,programs,killed_processes}.py
)
members=(-e "primitives[arrow,tls]" -e "executors[aws,openwhisk,kafka]" -e dsl -e "orchestrator[triggers,metrics]" -e libraries/multiprocessing)
uv="$PWD/.venv/bin/uv"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export UV_PYTHON_DOWNLOADS=never HYPOTHESIS_PROFILE="${HYPOTHESIS_PROFILE:-ci}"

pyenv=$(printf '%s:' "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin) # before the shims, which may refuse to start
interpreter() { # version
    PATH="$pyenv$PATH" "$uv" python find --no-project --system "$1" 2>/dev/null
}

check() { # version, lowest-direct or highest; chained, since a failure must end it and not the script
    local venv="$folder/$1-$2" python
    python=$(interpreter "$1") &&
        "$uv" venv --quiet --python "$python" "$venv" &&
        install "$venv" --resolution "$2" "${members[@]}" &&
        "$uv" pip freeze --quiet --python "$venv" --exclude-editable >"$venv/constraints" &&
        install "$venv" --constraint "$venv/constraints" --group test &&
        echo "$("$venv/bin/python" -V), $2 dependencies: $(grep -E '^(numpy|pyarrow|pydantic|temporalio)==' "$venv/constraints" | xargs)" &&
        PATH="$venv/bin:$PATH" "$venv/bin/python" -m pytest -q -p no:cacheprovider \
            -n "${PROCESSES:-2}" --dist loadfile --no-loadscope-reorder "${core[@]}"
}

install() { # environment, what; wheels only, but for pandarallel, which has none, and without the workspace's settings, which hold back Python 3.11
    "$uv" pip install --quiet --no-config --only-binary :all: --no-binary pandarallel --python "$@"
}

found=() missing=()
for version in "${supported[@]}"; do
    if interpreter "$version" >/dev/null; then found+=("$version"); else missing+=("$version"); fi
done
case "${1:-matrix}" in
corners) checks=("${found[0]} lowest-direct" "${found[-1]} highest") ;;
matrix) mapfile -t checks < <(for version in "${found[@]}"; do echo "$version lowest-direct" && echo "$version highest"; done) ;;
*) echo "pythons.sh: matrix or corners, not $1" >&2 && exit 2 ;;
esac
failed=()
for each in "${checks[@]}"; do
    check ${each} || failed+=("$each") # two words
done
echo "run: ${checks[*]/#/Python }"
for version in "${missing[@]}"; do echo "not checked: Python $version, which this machine does not have"; done
for each in "${failed[@]}"; do echo "failed: Python $each"; done
test ${#failed[@]} = 0
