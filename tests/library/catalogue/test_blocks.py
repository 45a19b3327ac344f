from collections.abc import Mapping, Sequence

from sqlalchemy import Engine

from firstdrift.catalogue.blocks import Reader, contents, contents_at, homes, split
from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.tables import NodeBlockEntry, SliceEntry

BLOCKS = NodeBlockEntry.__table__
FIRSTS = (0, 3, 10)


def with_blocks(engine: Engine) -> Engine:
    """Keep three blocks of a slice, of 3, 7 and 2 places, whose contents are their places."""
    with writing(engine) as session:
        session.connection().exec_driver_sql(
            "INSERT INTO dumps (id, path, format, fingerprint, evidence, attributes, problems, indexed_at)"
            " VALUES (1, '', '', '', '[]', '{}', '[]', 0)"
        )
        session.add(SliceEntry(id=1, dump_id=1, position=0, directory="", problems=()))
        session.flush()
        for first, last in zip(FIRSTS, (3, 10, 12), strict=True):
            session.add(
                NodeBlockEntry(
                    slice_id=1,
                    first=first,
                    names=b"",
                    dtypes=(),
                    problems=0,
                    content=bytes(range(first, last)),
                )
            )
    return engine


def test_records_are_cut_into_pieces_that_know_what_is_before_them() -> None:
    assert list(split("abcde", 2)) == [(0, "ab"), (2, "cd"), (4, "e")]
    assert list(split("", 2)) == []


def test_a_place_is_in_the_last_block_that_begins_before_it() -> None:
    assert homes(FIRSTS, (0, 2, 3, 9, 10, 99)) == {0: 0, 2: 0, 3: 3, 9: 3, 10: 10, 99: 10}
    assert homes((5,), (4,)) == homes((), (4,)) == {}


def test_blocks_are_found_by_places_in_them(engine: Engine) -> None:
    with reading(with_blocks(engine)) as session:
        assert [first for first, _ in contents(session, BLOCKS, 1)] == list(FIRSTS)
        assert [first for first, _ in contents_at(session, BLOCKS, 1, (11, 4, 5))] == [3, 10]
        assert list(contents_at(session, BLOCKS, 2, (1,))) == []


def test_a_reader_opens_a_block_once(engine: Engine) -> None:
    opened: list[int] = []

    class Places:
        def __init__(self, first: int, content: bytes) -> None:
            opened.append(first)
            self._content = content

        def at(self, places: Sequence[int]) -> Mapping[int, int]:
            return {place: place for place in places if place in self._content}

    with reading(with_blocks(engine)) as session:
        reader = Reader(session, BLOCKS, 1, Places)
        assert reader.at((4, 1, 5)) == {4: 4, 1: 1, 5: 5}
        assert reader.at((9, 11, 12)) == {9: 9, 11: 11}
        assert opened == [0, 3, 10]
        assert Reader(session, BLOCKS, 2, Places).at((4,)) == {}
