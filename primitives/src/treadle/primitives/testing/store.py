"""Conformance tests for every `Store`. Subclass `StoreTests` with a fixture `store` that returns a new, empty store."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ..errors import MissingError, UsageError
from ..stores.store import ObjectInfo, Store

ODD_NAMES = ["loop[3].assign/0.1.9f", "a b/c+d", "é/ü", "100%/%41", "q?x=1", "a&b=c", "日本/🧵"]
REFUSED_NAMES = ["", "/a", "a/", "a//b", "../a", "a/../b", "./a", "a\0b"]


class StoreTests:
    """Claims about any store; names of the tests are the contract."""

    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError("a subclass gives a new, empty store")

    def test_prepared_object_is_created_like_any_other(self, store: Store) -> None:
        for number in range(3):
            store.prepare(f"chain/{number}")
            assert [info.name for info in store.list("chain")] == [f"chain/{one}" for one in range(number)]
            assert store.create(f"chain/{number}", b"%d" % number)
            store.prepare("chain/next")
            assert not store.create(f"chain/{number}", b"other")
            assert store.get(f"chain/{number}") == b"%d" % number

    def test_what_was_put_is_read_back(self, store: Store) -> None:
        store.put("a/b", b"12345")
        assert store.get("a/b") == b"12345"

    def test_an_empty_object_exists(self, store: Store) -> None:
        store.put("empty", b"")
        assert store.get("empty") == b""
        info = store.head("empty")
        assert info is not None
        assert info.size == 0

    def test_an_object_may_be_given_in_pieces_of_any_kind(self, store: Store) -> None:
        store.put("a", [b"12", bytearray(b"34"), memoryview(b"0567")[1:3], b""])
        assert store.get("a") == b"123456"[:4] + b"56"

    def test_an_error_of_what_is_being_put_passes_and_nothing_is_there(self, store: Store) -> None:
        def pieces() -> Iterator[bytes]:
            yield b"begun"
            raise MissingError("the rest is gone")

        for put in (store.put, store.create):
            with pytest.raises(MissingError, match="the rest is gone"):
                put("a", pieces())
        assert list(store.list()) == []

    def test_put_replaces_and_the_version_changes(self, store: Store) -> None:
        store.put("a", b"old")
        before = store.head("a")
        store.put("a", b"newer")
        after = store.head("a")
        assert store.get("a") == b"newer"
        assert before is not None
        assert after is not None
        assert before.version != after.version

    def test_create_makes_an_object_once(self, store: Store) -> None:
        assert store.create("ledger/1", b"first")
        assert not store.create("ledger/1", b"second")
        assert store.get("ledger/1") == b"first"

    def test_of_many_creators_exactly_one_wins_and_its_data_stays(self, store: Store) -> None:
        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(lambda writer: store.create("x/contended", b"%d" % writer * 1000), range(8)))
        assert sum(won) == 1
        assert store.get("x/contended") == b"%d" % won.index(True) * 1000

    def test_a_missing_object_is_a_missing_error_that_names_it(self, store: Store) -> None:
        store.put("folder/object", b"")
        for name in ("nothing", "folder", "folder/object/below"):
            with pytest.raises(MissingError, match=name):
                store.get_range(name, 0, 1)
            with pytest.raises(MissingError, match=name):
                store.get(name)
            assert store.head(name) is None

    def test_a_range_ends_where_the_object_ends(self, store: Store) -> None:
        store.put("a", bytes(range(100)))
        assert store.get_range("a", 10, 5) == bytes(range(10, 15))
        assert store.get_range("a", 90, 50) == bytes(range(90, 100))
        assert store.get_range("a", 100, 5) == b""
        assert store.get_range("a", 500, 5) == b""
        assert store.get_range("a", 3, 0) == b""

    def test_a_part_comes_with_the_version_of_its_object(self, store: Store) -> None:
        store.put("a", bytes(range(100)))
        info = store.head("a")
        assert store.get_part("a", 90, 50) == (bytes(range(90, 100)), info)
        assert store.get_part("a", 100, 5) == (b"", info)
        store.put("a", bytes(99))
        assert store.get_part("a", 0, 1) == (b"\0", store.head("a"))
        with pytest.raises(MissingError, match="nothing"):
            store.get_part("nothing", 0, 1)

    def test_a_large_object_is_whole(self, store: Store) -> None:
        data = bytes(range(256)) * (20 << 12)
        store.put("large", [data[:1000], data[1000:]])
        assert store.get("large") == data
        assert store.get_range("large", 10_000_000, 1000) == data[10_000_000:][:1000]

    def test_a_large_object_is_not_copied_on_its_way(self, store: Store) -> None:
        data = bytes(range(256)) * (64 << 12)
        tracemalloc.start()
        try:
            store.put("large", [data[:1000], memoryview(data)[1000:]])
            assert tracemalloc.get_traced_memory()[1] < len(data) // 2
        finally:
            tracemalloc.stop()
        assert store.get("large") == data

    def test_a_listing_is_sorted_by_the_bytes_of_the_name(self, store: Store) -> None:
        names = ["b", "a/z", "a-b", "a/b/c", "a.txt", "Z", "é", "\U0001f9f5", "\uffee"]
        for name in names:
            store.put(name, b"x")
        assert [info.name for info in store.list()] == sorted(names, key=str.encode)

    def test_a_listing_of_a_folder_holds_only_what_is_below_it(self, store: Store) -> None:
        for name in ("a/1", "a/b/2", "ab/3", "a.4", "c"):
            store.put(name, b"12")
        for prefix in ("a", "a/"):
            assert [(info.name, info.size) for info in store.list(prefix)] == [("a/1", 2), ("a/b/2", 2)]
        assert list(store.list("none")) == []

    def test_a_listing_of_one_folder_holds_nothing_of_the_folders_in_it(self, store: Store) -> None:
        for name in ("b", "a/é", "a/Z", "a/b/2", "ab"):
            store.put(name, b"")
        for prefix in ("a", "a/"):
            assert [info.name for info in store.list_folder(prefix)] == ["a/Z", "a/é"]
        assert [info.name for info in store.list_folder()] == ["ab", "b"]
        assert list(store.list_folder("none")) == []

    def test_a_listing_agrees_with_head(self, store: Store) -> None:
        store.put("a/1", b"123")
        listed: list[ObjectInfo] = list(store.list("a"))
        assert listed == [store.head("a/1")]

    def test_an_empty_store_lists_nothing(self, store: Store) -> None:
        assert list(store.list()) == []

    def test_deleted_objects_are_gone_and_deleting_twice_is_no_error(self, store: Store) -> None:
        store.put("a/1", b"")
        store.put("a/2", b"")
        store.delete(["a/1", "never/there"])
        store.delete(["a/1", "a", "a/2/below"])
        assert [info.name for info in store.list()] == ["a/2"]

    def test_a_deleted_prefix_takes_its_folder_and_no_neighbour(self, store: Store) -> None:
        for name in ("r/1/a", "r/1/b/c", "r/10/a"):
            store.put(name, b"")
        store.delete_prefix("r/1")
        store.delete_prefix("r/2")
        assert [info.name for info in store.list()] == ["r/10/a"]

    def test_several_may_delete_a_prefix_at_once(self, store: Store) -> None:
        for index in range(40):
            store.put(f"r/{index}/a", b"")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(store.delete_prefix, ["r"] * 4))
        assert list(store.list()) == []

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_any_name_is_kept_as_it_is(self, store: Store, name: str) -> None:
        store.put(name, b"x")
        assert store.get(name) == b"x"
        assert not store.create(name, b"y")
        assert [info.name for info in store.list()] == [name]
        store.delete([name])
        assert list(store.list()) == []

    @pytest.mark.parametrize("name", REFUSED_NAMES)
    def test_a_name_that_could_leave_its_folder_is_refused(self, store: Store, name: str) -> None:
        with pytest.raises(UsageError):
            store.put(name, b"")
        with pytest.raises(UsageError):
            store.get(name)

    def test_the_whole_store_is_not_deleted_by_an_empty_prefix(self, store: Store) -> None:
        store.put("a", b"")
        with pytest.raises(UsageError):
            store.delete_prefix("")
        assert store.get("a") == b""

    def test_a_store_opened_again_by_its_url_is_the_same(self, store: Store) -> None:
        store.put("a", b"1")
        assert Store.open(store.url).get("a") == b"1"

    def test_threads_may_share_a_store(self, store: Store) -> None:
        names = [f"t/{index:02}" for index in range(32)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: store.put(name, name.encode()), names))
            assert list(pool.map(store.get, names)) == [name.encode() for name in names]
