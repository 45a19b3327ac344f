"""Measurements of pairs of tensors of two indexed slices, in blocks, and found again by the pair."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from msgspec import Struct
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from firstdrift.catalogue.blocks import split
from firstdrift.catalogue.bulk import insert_many
from firstdrift.catalogue.codec import to_text
from firstdrift.catalogue.packing import Block, pack, unpack
from firstdrift.catalogue.tables import MeasurementBlockEntry, SliceEntry
from firstdrift.groups import gathered
from firstdrift.matching.plan import TensorPair
from firstdrift.metrics.measurement import Measurement, MeasurementKind

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


class PackedMeasurements(Struct, frozen=True):
    """Measurements in blocks: which pairs are in each, and what was measured of them."""

    keys: tuple[bytes, ...] = ()
    content: tuple[bytes, ...] = ()


def pack_measurements(measured: Mapping[bytes, Measurement]) -> PackedMeasurements:
    """Pack measurements, by pair key."""
    blocks = [dict(block) for _, block in split(list(measured.items()), _LENGTH)]
    return PackedMeasurements(
        tuple(b"".join(block) for block in blocks),
        tuple(pack(Measurement, list(block.values())) for block in blocks),
    )


def add_measurements(
    session: Session, golden: int, target: int, measured: Mapping[bytes, Measurement], after: int = 0
) -> int:
    """Keep measurements of pairs of two indexed slices, by pair key; they hold instead of those before.

    What somebody else has measured since is not kept again.

    Args:
        session: a writing session.
        golden: id of the golden slice.
        target: id of the target slice.
        measured: what was measured.
        after: the last block that there was when it was begun to measure.

    Returns:
        The last block that there is now.
    """
    _hold(session, golden)
    others = _load(session, golden, target, after)
    new = {key: one for key, one in measured.items() if not _is_known(one, others.get(key))}
    return _insert(session, golden, target, pack_measurements(new))


def add_packed_measurements(session: Session, golden: int, target: int, packed: PackedMeasurements) -> None:
    """Keep measurements as they were packed, or, where some of their pairs are known, what is new of them."""
    _hold(session, golden)
    keys = frozenset().union(*map(_keys, packed.keys))
    if not keys.isdisjoint(places_of(session, golden, target)):
        before = _load(session, golden, target)
        packed = pack_measurements(
            {key: one for key, one in _unpacked(packed) if not _is_same(one, before.get(key))}
        )
    _insert(session, golden, target, packed)


def _unpacked(packed: PackedMeasurements) -> Iterator[tuple[bytes, Measurement]]:
    for keys, content in zip(packed.keys, packed.content, strict=True):
        yield from zip(_keys(keys), unpack(Measurement, content), strict=True)


def _hold(session: Session, golden: int) -> None:
    """Let nobody else add measurements of a golden slice until the end of the transaction."""
    session.execute(select(SliceEntry.id).where(SliceEntry.id == golden).with_for_update(key_share=True))


def _is_known(one: Measurement, known: Measurement | None) -> bool:
    """Tell whether what is known is as good: that the data could not be read may be so no longer."""
    unread = MeasurementKind.INCOMPARABLE
    return known is not None and (known.kind is not unread or one.kind is unread)


def _is_same(one: Measurement, known: Measurement | None) -> bool:
    return one == known or repr(one) == repr(known)  # NaN differs from itself


def _insert(session: Session, golden: int, target: int, packed: PackedMeasurements) -> int:
    columns = {"keys": packed.keys, "content": packed.content}
    insert_many(session, MeasurementBlockEntry, columns, golden_id=golden, target_id=target)
    return last_block(session, golden, target)


def last_block(session: Session, golden: int, target: int) -> int:
    """Return the last block of measurements of two indexed slices; 0 if there is none."""
    here = (_BLOCKS.golden_id == golden, _BLOCKS.target_id == target)
    return session.scalar(select(func.max(_BLOCKS.id)).where(*here)) or 0


def load_measurements(session: Session, golden: int, target: int) -> dict[bytes, Measurement]:
    """Give what has been measured of two indexed slices, by pair key."""
    return _load(session, golden, target)


def _load(session: Session, golden: int, target: int, after: int = 0) -> dict[bytes, Measurement]:
    found: dict[bytes, Measurement] = {}
    for keys, content in _blocks(session, golden, target, _BLOCKS["keys"], _BLOCKS.content, after=after):
        found |= zip(_keys(keys), unpack(Measurement, content), strict=True)
    return found


def places_of(session: Session, golden: int, target: int) -> dict[bytes, Place]:
    """Say where what has been measured of two indexed slices is kept, by pair key."""
    found: dict[bytes, Place] = {}
    for block, keys in _blocks(session, golden, target, _BLOCKS.id, _BLOCKS["keys"]):
        found |= {key: (block, place) for place, key in enumerate(_keys(keys))}
    return found


def _blocks(
    session: Session,
    golden: int,
    target: int,
    *columns: Any,  # noqa: ANN401
    after: int = 0,
) -> Iterator[tuple[Any, ...]]:
    here = (_BLOCKS.golden_id == golden, _BLOCKS.target_id == target, _BLOCKS.id > after)
    return iter(session.execute(select(*columns).where(*here).order_by(_BLOCKS.id)))


def _keys(joined: bytes) -> list[bytes]:
    return [joined[start : start + KEY_BYTES] for start in range(0, len(joined), KEY_BYTES)]


class Measurements:
    """Looks up measurements by their places, and remembers the blocks that were read last."""

    def __init__(self, session: Session) -> None:
        """Read as it is asked for."""
        self._session = session
        self._known: dict[int, Block[Measurement]] = {}

    def at(self, places: Sequence[Place]) -> list[Measurement]:
        """Give the measurements at some places."""
        blocks = {block for block, _ in places}
        self._known = {block: known for block, known in self._known.items() if block in blocks}
        missing = blocks - self._known.keys()
        found = select(_BLOCKS.id, _BLOCKS.content).where(_BLOCKS.id.in_(missing))
        for block, content in self._session.execute(found) if missing else ():
            self._known[block] = Block(Measurement, content)
        wanted = gathered(places)
        known = {
            (block, place): measurement
            for block, here in wanted.items()
            for place, measurement in zip(here, self._known[block].at(here), strict=True)
        }
        return list(map(known.__getitem__, places))
