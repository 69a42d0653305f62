from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.shuffling.seeds import partition_seed, rng


@given(st.integers(), st.text(st.characters(codec="utf-8")), st.integers(0))
def test_seed_is_the_documented_hash(seed: int, stage: str, partition: int) -> None:
    text = "\n".join(["treadle seed 1", str(seed), stage, str(partition)])
    assert f"{partition_seed(seed, stage, partition):032x}" == hashlib.sha256(text.encode()).hexdigest()[:32]


def test_seed_and_first_draws_are_pinned() -> None:
    assert partition_seed(0, "lloyd[3].assign", 7) == 0xA69282486E223A867241FCF818E94813
    assert rng(0, "lloyd[3].assign", 7).integers(0, 1000, 5).tolist() == [120, 78, 128, 645, 612]


def test_partitions_stages_and_seeds_draw_differently() -> None:
    others = [(0, "a", 0), (1, "a", 0), (0, "b", 0), (0, "a", 1), (0, "a[1]", 0)]
    assert len({rng(*other).integers(2**62) for other in others}) == len(others)


def test_two_attempts_draw_the_same() -> None:
    assert rng(1, "a", 2).random(4).tolist() == rng(1, "a", 2).random(4).tolist()
