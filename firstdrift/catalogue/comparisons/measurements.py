"""Measurements of pairs of tensors of two indexed slices, in blocks, and found again by the pair."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from firstdrift.catalogue.blocks import split
from firstdrift.catalogue.bulk import insert_many
from firstdrift.catalogue.codec import to_text
from firstdrift.catalogue.packing import pack, unpack
from firstdrift.catalogue.tables import MeasurementBlockEntry
from firstdrift.matching.plan import TensorPair
from firstdrift.metrics.measurement import Measurement

MEASUREMENTS_VERSION = 14
"""Counts up when measuring gives other numbers than before, so that old ones are not taken for new."""

_LENGTH = 256
KEY_BYTES = 8
_BLOCKS = MeasurementBlockEntry.__table__.c

Place = tuple[int, int]
"""Where a measurement is: id of its block, and place in it."""


def pair_keys(pairs: Sequence[TensorPair]) -> list[bytes]:
    """Digest of each pair, which tensors of two given slices it compares, and how."""
    seen: Counter[bytes] = Counter()
    keys = []
    for pair in pairs:
        parts = (
            str(MEASUREMENTS_VERSION),
            pair.golden_node,
            pair.golden.label,
            pair.target_node,
            pair.target.label,
            to_text(pair.transform) if pair.transform else "",
            "" if pair.incomparable is None else to_text(pair.incomparable),
            to_text((pair.golden_parts, pair.target_parts, *pair.witnesses)) if pair.joining else "",
            *(("by statistics",) if pair.by_statistics else ()),
        )
        key = _digest("\0".join(parts).encode(errors="surrogatepass"))
        seen[key] += 1
        keys.append(key if seen[key] == 1 else _digest(key + str(seen[key]).encode()))
    return [key[:KEY_BYTES] for key in keys]


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


def add_measurements(
    session: Session, golden: int, target: int, measured: Mapping[bytes, Measurement]
) -> None:
    """Keep measurements of pairs of two indexed slices, by pair key; they hold instead of those before."""
    blocks = [dict(block) for _, block in split(list(measured.items()), _LENGTH)]
    columns = {
        "keys": [b"".join(block) for block in blocks],
        "content": [pack(Measurement, list(block.values())) for block in blocks],
    }
    insert_many(session, MeasurementBlockEntry, columns, golden_id=golden, target_id=target)


def load_measurements(session: Session, golden: int, target: int) -> dict[bytes, Measurement]:
    """Give what has been measured of two indexed slices, by pair key."""
    found: dict[bytes, Measurement] = {}
    for keys, content in _blocks(session, golden, target, _BLOCKS["keys"], _BLOCKS.content):
        found |= zip(_keys(keys), unpack(Measurement, content), strict=True)
    return found


def places_of(session: Session, golden: int, target: int) -> dict[bytes, Place]:
    """Say where what has been measured of two indexed slices is kept, by pair key."""
    found: dict[bytes, Place] = {}
    for block, keys in _blocks(session, golden, target, _BLOCKS.id, _BLOCKS["keys"]):
        found |= {key: (block, place) for place, key in enumerate(_keys(keys))}
    return found


def _blocks(session: Session, golden: int, target: int, *columns: Any) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
    here = (_BLOCKS.golden_id == golden, _BLOCKS.target_id == target)
    return iter(session.execute(select(*columns).where(*here).order_by(_BLOCKS.id)))


def _keys(joined: bytes) -> list[bytes]:
    return [joined[start : start + KEY_BYTES] for start in range(0, len(joined), KEY_BYTES)]


class Measurements:
    """Looks up measurements by their places, and remembers the blocks that were read last."""

    def __init__(self, session: Session) -> None:
        """Read as it is asked for."""
        self._session = session
        self._known: dict[int, list[Measurement]] = {}

    def at(self, places: Sequence[Place]) -> list[Measurement]:
        """Give the measurements at some places."""
        blocks = {block for block, _ in places}
        self._known = {block: known for block, known in self._known.items() if block in blocks}
        missing = blocks - self._known.keys()
        found = select(_BLOCKS.id, _BLOCKS.content).where(_BLOCKS.id.in_(missing))
        for block, content in self._session.execute(found) if missing else ():
            self._known[block] = unpack(Measurement, content)
        return [self._known[block][place] for block, place in places]
