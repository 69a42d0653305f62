"""Mutated documents of the repository, and the checks of their results.

`python tests/properties/mutations.py --seconds 3600` mutates for an hour, from a seed that it prints. A document that
breaks a claim is saved to a file, and the exit code is then 1. `--seed` and `--first` reproduce one of them.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treadle.client.submission import planned
from treadle.dsl.convert.python import to_python
from treadle.dsl.diagnostics.diagnostics import has_errors
from treadle.dsl.diagnostics.formats import DiagnosticFormat, format_diagnostics
from treadle.dsl.document.document import Document
from treadle.dsl.document.loader import load_yaml
from treadle.dsl.document.workflow_files import load
from treadle.dsl.model import Input
from treadle.dsl.normalise import normalise
from treadle.dsl.validation.inputs import resolve_inputs
from treadle.dsl.validation.validate import validate
from treadle.executors.interface import Capabilities
from treadle.orchestrator.planner import RunLocation
from treadle.orchestrator.run_store.run_files import Submission
from treadle.primitives.errors import TreadleError

MOST_SECONDS, MOST_MEMORY, MOST_OUTPUT = 2.0, 200 * 2**20, 2**20
"""CPU seconds of one document, memory besides the 100 MiB of the imported program, and characters of its findings."""
TRIES = 3
PACE = 0.15
"""CPU seconds of `_fixed_work` on the machine for which MOST_SECONDS holds: one idle core of an AMD EPYC."""
LARGEST = 10**6
"""Characters of a document."""
ROOT = Path(__file__).parents[2]
PLACES = ("tests/dsl/golden", "tests/dsl/golden/good", "examples")
NASTY = [
    "1e400", "9" * 400, "0x" + "f" * 900, "-1", "0", "1.5", "${{", "}}", "${{ inputs.x }}", "${{ run.id + 1 }}",
    "a\0b", "a{1,9999999999999}", "(" * 300, "*", "**/*", "[", "?", "~", "null", "true", ".inf", "2026-01-01", "\u2028",
    "\ud800", "ü" * 50, "<<", "inputs.x", "state.x", "a.state.b", "stages.a", "key", "100%", "1e3%", "9" * 400 + "%",
    "1h30m", "9" * 400 + "s", "1.5KiB", "9" * 400 + "TiB", "m:f", "captured:00", "s3://b/k", "file://x", "\t",
    "- a", "&a", "*a",
]  # fmt: skip
WHOLE = [0, -1, 1, 2**31, 2**63 - 1, 2**64 - 1, 2**64, -(2**63) - 1, 10**300]
VALUES: list[Any] = [*NASTY, *WHOLE, 1e308, -0.0, 5e-324, True, None, [], {}]

FORMS: tuple[DiagnosticFormat, ...] = ("text", "json")
SITE = RunLocation(
    {"local": Capabilities("local", 2, shares_host=True, gangs=True)}, 2**30, "file:///store", assumed_bytes=10**9
)
Mutation = Callable[[random.Random, str], str]


@dataclass
class Broken(Exception):
    """A document breaks a claim."""

    claim: str


def corpus() -> list[str]:
    """Every workflow in the repository's tests and examples. Valid ones are frequent, since most mutations break
    them."""
    files = [file for place in PLACES for file in sorted((ROOT / place).rglob("*.yaml"))]
    texts = [file.read_text("utf-8", "replace") for file in files if file.stat().st_size < 10_000]
    valid = [text for text in texts if not has_errors(validate(load(text)))]
    return [*texts, *valid * (8 * len(texts) // len(valid))]


def mutated(draw: random.Random, texts: list[str]) -> str:
    text = draw.choice(texts)
    for _ in range(draw.choice((1, 1, 1, 2, 2, 3, 8))):
        text = draw.choice(MUTATIONS)(draw, text)[:LARGEST]
    return text


# -- mutations -----------------------------------------------------------------------------------------------------


def _of_lines(change: Callable[[random.Random, list[str]], list[str]]) -> Mutation:
    def mutate(draw: random.Random, text: str) -> str:
        return "".join(change(draw, text.splitlines(keepends=True) or [""]))

    return mutate


def _drop(draw: random.Random, lines: list[str]) -> list[str]:
    at = draw.randrange(len(lines))
    return [*lines[:at], *lines[at + draw.randint(1, 3) :]]


def _repeat(draw: random.Random, lines: list[str]) -> list[str]:
    """Repeat some lines, unchanged or with numbers in them."""
    first = draw.randrange(len(lines))
    some = "".join(lines[first : first + draw.randint(1, 4)])
    name = next((word for word in some.replace(":", " ").split() if word.isidentifier()), "")
    times = draw.choice((2, 3, 10, 50, 400, LARGEST // max(1, len(some) + 5)))
    copies = (some.replace(name, f"{name}{index}", 1) if name else some for index in range(times))
    return [*lines[:first], *copies, *lines[first:]]


def _nested(draw: random.Random, lines: list[str]) -> list[str]:
    at, depth = draw.randrange(len(lines)), draw.choice((3, 40, 60, 70, 5000))
    head, colon, value = lines[at].partition(":")
    opening, closing = draw.choice((("[", "]"), ("{a: ", "}")))
    many = ",".join(["1"] * draw.choice((1, 1, 50, LARGEST // 3)))
    written = f"{head}{colon or ':'} {opening * depth}{value.strip() or many}{closing * depth}\n"
    return [*lines[:at], written, *lines[at + 1 :]]


def _swap(draw: random.Random, lines: list[str]) -> list[str]:
    a, b = draw.randrange(len(lines)), draw.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return lines


def _nasty_line(draw: random.Random, lines: list[str]) -> list[str]:
    at = draw.randrange(len(lines))
    head, colon, _ = lines[at].partition(":")
    value = draw.choice(NASTY)
    shown = draw.choice((value, json.dumps(value), f"'{value}'", f"!!float {value}", f"!x {value}"))
    return [*lines[:at], f"{head}{colon or ':'} {shown}\n", *lines[at + 1 :]]


def _bytes(draw: random.Random, text: str) -> str:
    at = draw.randrange(len(text) + 1)
    put: str = draw.choice(["", *"{}[]:,#&*!|>'\"%@`\0\t\n\ufeff\u0085-?0"])
    return text[:at] + put + text[at + draw.randint(0, 2) :]


def _of_data(draw: random.Random, text: str) -> str:
    """The same document with one value replaced, removed, moved or multiplied."""
    data = load_yaml(text).data if len(text) < 20_000 else None
    places = list(_places(data))
    if not places:
        return text
    holder, key = draw.choice(places)
    _change(draw, holder, key, [where[part] for where, part in places])
    written: str = json.dumps(data, indent=draw.choice((None, 1)), ensure_ascii=False)
    return written


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield data, key
        yield from _places(data[key])


def _change(draw: random.Random, holder: Any, key: Any, values: list[Any]) -> None:
    value = holder[key]
    match draw.randrange(6):
        case 0:
            holder[key] = draw.choice(VALUES)
        case 1:
            del holder[key]
        case 2:
            holder[key] = json.loads(json.dumps(draw.choice(values)))
        case 3 if isinstance(holder, dict):
            holder[draw.choice([*NASTY[:12], *holder, "type", "with", "by"])] = holder.pop(key)
        case 4 if isinstance(holder, dict):
            holder |= {f"{key}{index}": value for index in range(draw.choice((3, 300, 3000)))}
        case _:
            holder[key] = [value] * draw.choice((1, 2, 1000))


MUTATIONS: list[Mutation] = [*map(_of_lines, (_drop, _repeat, _nested, _swap, _nasty_line)), _bytes, *[_of_data] * 12]


# -- claims --------------------------------------------------------------------------------------------------------


def check(text: str) -> str:
    """The result for the document: `invalid`, `refused` by the plan, or `planned`. Raises Broken."""
    _forget_peak()
    memory = _memory("VmRSS")
    try:
        ended, spent = _timed(text)
    except Broken:
        raise
    except Exception as error:
        raise Broken(f"{type(error).__name__}: {error!s:.200}\n{traceback.format_exc(limit=-6)}") from error
    if spent > MOST_SECONDS:
        raise Broken(f"{ended} after {spent:.1f} s of CPU time at the pace of the reference")
    if (more := _memory("VmHWM") - memory) > MOST_MEMORY:
        raise Broken(f"{ended} with {more >> 20} MiB of memory")
    return ended


def _timed(text: str) -> tuple[str, float]:
    """(the result, its CPU time at the pace of the reference): the least of three runs, since other processes only add
    time."""
    spent: list[float] = []
    while not spent or (spent[-1] > MOST_SECONDS and len(spent) < TRIES):
        began = time.process_time()
        ended = _use(text)
        taken = time.process_time() - began
        spent.append(taken if taken < MOST_SECONDS else taken / _slowness())
    return ended, min(spent)


def _slowness() -> float:
    """The slowness of this machine now, by a fixed piece of work. 1: as fast as the reference, or faster."""
    return max(1.0, _fixed_work() / PACE)


def _fixed_work() -> float:
    """CPU time of work like that on documents: half a million small objects, which are kept until its end."""
    began = time.process_time()
    made = {f"key-{number}": (number, [str(number)], {"at": number}) for number in range(100_000)}
    sorted(made, key=lambda key: made[key][1])
    return time.process_time() - began


def _memory(line: str) -> int:
    """The process's memory in bytes: now (`VmRSS`), or the maximum (`VmHWM`) since `_forget_peak`."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition(f"{line}:")[2].split()[0])


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _use(text: str) -> str:
    """validate, plan and convert like the commands, but without importing functions."""
    document = load(text)
    found = validate(document)
    size = sum(len(format_diagnostics(found, form, document.sources)) for form in FORMS)
    if size > MOST_OUTPUT:
        raise Broken(f"findings of {size:,} characters")
    if has_errors(found):
        return "invalid"
    try:
        to_python(document.require())
        _plan(document)
    except TreadleError:
        return "refused"
    return "planned"


def _plan(document: Document) -> None:
    spec = document.require()
    given = {name: _value(declared) for name, declared in spec.inputs.items() if declared.required}
    submission = Submission("fuzz", normalise(spec), resolve_inputs(spec, given), "", {}, "/nowhere", "local")
    planned(submission, b"", SITE)


def _value(declared: Input) -> Any:
    data: dict[str, Any] = {"list": [1, 2], "dataset": {"items": [1, 2]}}
    some = data | {"string": "a", "uri": "a.txt", "boolean": True}
    return some.get(declared.type, declared.minimum if declared.minimum is not None else 3)


# -- for an hour -----------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutate documents, and check what validate, plan and convert do.")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--first", type=int, default=0, help="the number of the first document")
    parser.add_argument("--keep", type=Path, default=Path("/tmp"), help="where documents are kept that break a claim")
    given = parser.parse_args()
    texts, until, counts = corpus(), time.monotonic() + given.seconds, dict[str, int]()
    number = given.first
    gc.freeze()  # as tests/conftest.py does
    say(f"seed {given.seed}, {len(texts)} documents to mutate")
    while time.monotonic() < until:
        ended = _one(given, texts, number)
        counts[ended] = counts.get(ended, 0) + 1
        number += 1
        if number % 1000 == 0:
            say(f"{number:,} documents: {counts}, {_memory('VmRSS') >> 20} MiB")
    say(f"{number - given.first:,} documents in {given.seconds:.0f} s: {counts}")
    return 1 if counts.get("broken") else 0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _one(given: argparse.Namespace, texts: list[str], number: int) -> str:
    text = mutated(random.Random(f"{given.seed}-{number}"), texts)
    try:
        return check(text)
    except Broken as broken:
        kept = given.keep / f"broken-{given.seed}-{number}.yaml"
        kept.write_text(text, "utf-8", "surrogatepass")
        say(f"document {number}, kept in {kept}: {broken.claim}")
        return "broken"


if __name__ == "__main__":
    sys.exit(main())
