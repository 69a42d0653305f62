"""Threads that decode a type for the first time, all at once, in a separate process, since a race would end it."""

from __future__ import annotations

import subprocess
import sys

RACE = """
from __future__ import annotations
import sys, threading
import msgspec
from treadle.primitives.encoding.decoding import known

leaf = "".join(f"    a{n}: dict[str, list[float]] = {{}}\\n" for n in range(40))
twig = "".join(f"    b{n}: list[Leaf] | None = None\\n" for n in range(40))
tree = "".join(f"    c{n}: dict[str, Twig] | None = None\\n" for n in range(40))
for name, fields in (("Leaf", leaf), ("Twig", twig), ("Tree", tree)):
    exec(f"class {name}(msgspec.Struct):\\n{fields}")

full = {f"c{n}": {"x": {f"b{m}": [{"a1": {"y": [1.0]}}] for m in range(40)}} for n in range(40)}
data = msgspec.json.encode(full)
sys.setswitchinterval(1e-6)
start = threading.Barrier(12)

def decode() -> None:
    start.wait()
    msgspec.json.decode(data, type=known(Tree))

threads = [threading.Thread(target=decode) for _ in range(12)]
for one in threads:
    one.start()
for one in threads:
    one.join()
"""


def race(script: str) -> int:
    return subprocess.run([sys.executable, "-c", script], check=False, capture_output=True).returncode


def test_threads_that_decode_a_new_type_at_once_all_live() -> None:
    assert [race(RACE) for _ in range(3)] == [0, 0, 0]
