"""Try the example on this machine: python demo.py [--orders 2000].

Starts a Kafka broker (see tests/kafka.py for its requirements), deploys the workflow, serves its triggers, produces
orders and waits until the warehouse has them. Everything is in a temporary folder and on loopback, and ends with this
script.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parents[1] / "tests")]

from kafka import broker  # type: ignore[import-not-found]  # noqa: E402
from produce import send  # type: ignore[import-not-found]  # noqa: E402

TREADLE = str(Path(sys.executable).with_name("treadle"))


def prepare(home: Path, bootstrap: str) -> dict[str, str]:
    """Make a home with a profile and the secret. Returns the environment for commands."""
    (home / "secrets").mkdir(mode=0o700, parents=True)
    home.chmod(0o700)
    (home / "profiles.toml").write_text(f'[demo.kafka.orders]\nbootstrap.servers = "{bootstrap}"\n')
    (home / "secrets" / "warehouse").touch(mode=0o600)
    (home / "secrets" / "warehouse").write_text(str(home / "warehouse.sqlite"))
    known = {name: value for name, value in os.environ.items() if not name.startswith(("TREADLE_", "TEMPORAL_"))}
    return known | {"TREADLE_HOME": str(home), "TREADLE_PROFILE": "demo"}


def loaded(home: Path) -> dict[str, int]:
    """Order -> cents in the warehouse."""
    if not (home / "warehouse.sqlite").exists():
        return {}
    with closing(sqlite3.connect(home / "warehouse.sqlite", timeout=60)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'orders'").fetchone():
            return {}
        return dict(database.execute("SELECT order_id, cents FROM orders"))


def wait_until(what: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise SystemExit("it did not come about")
        time.sleep(0.2)


def main(orders: int) -> None:
    with broker() as kafka, tempfile.TemporaryDirectory(prefix="treadle-demo-", ignore_cleanup_errors=True) as folder:
        home = Path(folder) / "home"
        environment = prepare(home, kafka.bootstrap)

        def treadle(*words: str) -> None:
            print(f"$ treadle {' '.join(words)}", flush=True)
            subprocess.run([TREADLE, *words], env=environment, cwd=HERE, check=True)

        kafka.create_topic("orders.v1", 3)
        kafka.create_topic("orders.v1.dlt")
        service = None
        try:
            treadle("deploy", "orders_etl.yaml")
            service = subprocess.Popen([TREADLE, "triggers"], env=environment, cwd=HERE)
            sent = send(kafka.bootstrap, "orders.v1", orders, orders // 10, 3)
            wait_until(lambda: loaded(home) == sent)
            print(f"{len(sent)} orders over {sum(sent.values())} cents are in the warehouse", flush=True)
            treadle("list", "--trigger", "orders_etl.live")
            treadle("dlq", "list")
        finally:
            if service is not None:
                service.terminate()
                service.wait()
            subprocess.run([TREADLE, "dev", "down"], env=environment, cwd=HERE, check=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=2000)
    main(parser.parse_args().orders)
