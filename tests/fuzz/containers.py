"""Change what a file of tensors, an archive or a database says, with knowledge of how each is laid out.

mutated(content, chance)   the same file with some things in it changed: always the same for the same chance

What a file is made of is seen from its first bytes. Members of an archive are changed inside and packed anew
with right checksums, so that what reads them comes to see them; texts are changed by `mutations.py`.
"""

import io
import pickletools
import random
import sqlite3
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing, suppress

from fuzz.mutations import INTEGERS, NAMES, changed_bytes, changed_json, changed_words, changed_yaml

_Chance = random.Random
_Change = Callable[[bytes, _Chance], bytes]


def changed_npy(content: bytes, chance: _Chance) -> bytes:
    """Write another header: other dtypes, shapes and orders, and lengths that do not fit."""
    size = struct.unpack_from("<H", content, 8)[0]
    said = {
        "descr": chance.choice(
            ("<f4", ">f8", "|O", "<U9", "|V8", "|b1", "<M8[ns]", "<f16", "<c8", "<i2", "x", "<f2")
        ),
        "fortran_order": chance.choice((True, False, 1, None)),
        "shape": chance.choice(
            (
                (2, 3),
                (),
                (-1,),
                (2**62, 4),
                (2**63,),
                (0, 2**64),
                (True,),
                [2, 3],
                (2.0,),
                (1,) * 70,
                "x",
                (3,),
            )
        ),
    }
    if chance.random() < 0.3:
        said.pop(chance.choice(list(said)))
    if chance.random() < 0.2:
        said[chance.choice(NAMES)] = 1
    header = chance.choice(
        (repr(said), repr(said)[:-2], "(" * 300, "[" + repr(said), repr(said).replace("'", '"'))
    )
    encoded = header.encode("latin-1", "replace").ljust(size) + b"\n"
    length = chance.choice((len(encoded), len(encoded), len(encoded), 0, 2**16 - 1, 10))
    version = chance.choice((b"\1\0", b"\1\0", b"\2\0", b"\3\0", b"\x09\0"))
    packed = struct.pack("<H" if version == b"\1\0" else "<I", length)
    return b"\x93NUMPY" + version + packed + encoded + content[10 + size :]


def changed_safetensors(content: bytes, chance: _Chance) -> bytes:
    """Change the header by its structure, and how long it is said to be."""
    size = struct.unpack_from("<Q", content)[0]
    header = changed_json(content[8 : 8 + size], chance)
    length = len(header) if chance.random() < 0.8 else chance.choice(INTEGERS) % 2**64
    return struct.pack("<Q", length) + header + content[8 + size :]


def changed_pickle(content: bytes, chance: _Chance) -> bytes:
    """Remove, repeat, exchange and replace steps of a pickle."""
    try:
        starts = [at for _, _, at in pickletools.genops(content) if at is not None]
    except Exception:  # noqa: BLE001 (pickletools raises whatever it comes across)
        return changed_bytes(content, chance)
    steps = [content[start:end] for start, end in zip(starts, [*starts[1:], starts[-1] + 1], strict=True)]
    rest = content[starts[-1] + 1 :]
    for _ in range(chance.choice((1, 1, 2, 4))):
        at, other = chance.randrange(len(steps)), chance.randrange(len(steps))
        what = chance.choice(("gone", "twice", "swapped", "number", "other", "bytes"))
        if what == "gone" and len(steps) > 1:
            del steps[at]
        elif what == "twice":
            steps[at:at] = [steps[other]] * chance.choice((1, 1, 200))
        elif what == "swapped":
            steps[at], steps[other] = steps[other], steps[at]
        elif what == "number":
            steps[at] = chance.choice(_NUMBERS)
        elif what == "other":
            steps[at] = chance.choice(_STEPS)
        else:
            steps[at] = changed_bytes(steps[at], chance)
    return b"".join(steps) + rest


_NUMBERS = (
    *(
        b"J\xff\xff\xff\xff",
        b"J\xff\xff\xff\x7f",
        b"K\0",
        b"M\xff\xff",
        b"\x88",
        b"N",
        b"G\x7f\xf8" + bytes(6),
    ),
    *(
        b"\x8a\x08" + b"\xff" * 7 + b"\x7f",
        b"\x8a\x00",
        b"\x8b\xff\xff\xff\x7f",
        b"X\1\0\0\0a",
        b"]",
        b")",
        b"}",
    ),
)
_STEPS = (
    *(
        b"0",
        b"1",
        b"2",
        b"(",
        b"t",
        b"R",
        b"b",
        b"s",
        b"u",
        b"e",
        b"a",
        b"o",
        b"Q",
        b".",
        b"\x81",
        b"\x85",
        b"\x86",
    ),
    *(b"q\xff", b"h\xff", b"h\0", b"r\xff\xff\xff\xff", b"\x94", b"\x95" + b"\xff" * 8, b"X\xff\xff\xff\x7f"),
    *(
        b"cos\nsystem\n",
        b"ctorch._utils\n_rebuild_tensor_v2\n",
        b"ctorch\nFloatStorage\n",
        b"\x93",
        b"\x97",
        b"\x98",
    ),
    *(
        b"ccollections\nOrderedDict\n",
        b"cbuiltins\ngetattr\n",
        b"c\xff\n\n",
        b"I01\n",
        b"L9999999999999L\n",
        b"Vx\n",
    ),
)


def changed_zip(content: bytes, chance: _Chance) -> bytes:
    """Change a member of a zip file, or its name, kind and packing, and pack all anew."""
    if chance.random() < 0.25:
        return changed_bytes(content, chance)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(info, archive.read(info)) for info in archive.infolist()]
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError):
        return changed_bytes(content, chance)
    at = chance.randrange(len(members))
    info, inside = members[at]
    what = chance.choice(("inside", "inside", "inside", "name", "gone", "twice", "mode", "packing"))
    if what == "gone":
        del members[at]
    elif what == "twice":
        members.append(members[at])
    elif what == "inside":
        members[at] = info, mutated(inside, chance)
    elif what == "mode":
        info.external_attr = chance.choice((0o120777, 0o20666, 0o10666, 0o40755, 0o104777)) << 16
    elif what == "name":
        info.filename = chance.choice(_PATHS)
    return _zipped(members, chance.choice((0, 0, 8, 12)) if what == "packing" else 0)


def _zipped(members: list[tuple[zipfile.ZipInfo, bytes]], method: int) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are there twice
        with zipfile.ZipFile(file, "w", method) as archive:
            for info, inside in members:
                written = zipfile.ZipInfo(info.filename)
                written.external_attr, written.compress_type = info.external_attr, method
                with suppress(UnicodeEncodeError, ValueError):
                    archive.writestr(written, inside)
    return file.getvalue()


_PATHS = (
    *(
        "../x",
        "/x",
        "a/../../x",
        "C:\\x",
        "a\\..\\..\\x",
        "x" * 300,
        "a/" * 200,
        ".",
        "./",
        "\xe9\u4e2d",
        "a\0b",
        "a:b",
    ),
    *(
        "archive/data.pkl",
        "data.pkl",
        "byteorder",
        "version",
        "con",
        "x/data/0",
        "..",
        "a//b",
        " ",
        "x/.data/x",
        ".npy",
    ),
)


def changed_tar(content: bytes, chance: _Chance) -> bytes:
    """Change a member of a tar file: its name, kind, link, size or what is in it."""
    if chance.random() < 0.3:
        return changed_bytes(content, chance)
    file = io.BytesIO()
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            members = [(info, _inside(archive, info)) for info in archive.getmembers()]
    except (tarfile.TarError, OSError, ValueError):
        return changed_bytes(content, chance)
    if not members:
        return changed_bytes(content, chance)
    info, inside = members[chance.randrange(len(members))]
    what = chance.choice(("name", "kind", "kind", "link", "twice", "mode", "inside", "sparse"))
    if what == "name":
        info.name = chance.choice(_PATHS)
    elif what in ("kind", "link"):
        info.type = chance.choice(
            (b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"S", b"Z", b"L", b"x", b"g", b"K")
        )
        info.linkname = chance.choice((*_PATHS, *(each.name for each, _ in members)))
    elif what == "twice":
        members.append((info, inside))
    elif what == "mode":
        info.mode, info.mtime = chance.choice((0o6777, 0, 0o7777777)), chance.choice((-1, 2**40, 0))
    elif what == "sparse":
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.size": str(chance.choice(INTEGERS))}
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as written:
        for each, held in members:
            each.size = len(held)
            with suppress(ValueError, UnicodeError, struct.error):
                written.addfile(each, io.BytesIO(held))
    return file.getvalue()


def _inside(archive: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    opened = archive.extractfile(info) if info.isreg() else None
    return opened.read() if opened is not None else b""


def changed_bin(content: bytes, chance: _Chance) -> bytes:
    """Change a field of the header of an ATB file."""
    head, mark, values = content.partition(b"$End=1\n")
    lines = head.split(b"\n")
    at = chance.randrange(len(lines))
    name = lines[at].partition(b"=")[0]
    number = str(
        chance.choice((*INTEGERS, 27, 2, 9, "1,2", "2,-1", "9" * 400, "", "x", "0,4", "4,0"))
    ).encode()
    lines[at : at + 1] = chance.choice(([name + b"=" + number], [], [lines[at]] * 2, [name], [b"=" + number]))
    return b"\n".join(lines) + mark + values


def changed_sqlite(content: bytes, chance: _Chance) -> bytes:
    """Put something else into a cell, a column, a table of a database, by its own language."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        database.deserialize(content)
        columns = [row[1] for row in database.execute("PRAGMA table_info(tb_nodes)")]
        (rows,) = database.execute("SELECT count(*) FROM tb_nodes").fetchone()
        column, row = chance.choice(columns), chance.randrange(rows) if rows else 0
        what = chance.choice(("cell", "cell", "cell", "json", "json", "column", "table", "view", "rows"))
        at = "rowid = (SELECT rowid FROM tb_nodes LIMIT 1 OFFSET ?)"
        if what in ("cell", "json"):
            value = chance.choice(_CELLS_OF_SQLITE)
            if what == "json":
                column = chance.choice(("input_data", "output_data"))
                (text,) = database.execute(f"SELECT {column} FROM tb_nodes WHERE {at}", (row,)).fetchone()  # noqa: S608
                value = changed_json(str(text).encode(), chance).decode("utf-8", "replace")
            with suppress(sqlite3.Error, UnicodeError):
                database.execute(f"UPDATE tb_nodes SET {column} = ? WHERE {at}", (value, row))  # noqa: S608
        else:
            for statement in _STATEMENTS[what]:
                with suppress(sqlite3.Error):
                    database.execute(statement.format(column=column))
        return database.serialize()


_CELLS_OF_SQLITE = (
    None,
    b"\0\xff",
    "x" * 90_000,
    2**62,
    -1,
    1e308,
    float("inf"),
    "",
    "NPU",
    "{",
    "\ufffd\0",
    "[[1]]",
)
_STATEMENTS = {
    "column": ("ALTER TABLE tb_nodes RENAME COLUMN {column} TO other",),
    "table": ("ALTER TABLE tb_nodes RENAME TO other",),
    "view": ("ALTER TABLE tb_nodes RENAME TO other", "CREATE VIEW tb_nodes AS SELECT * FROM tb_nodes"),
    "rows": ("DELETE FROM tb_nodes",),
}


def _is_tar(content: bytes) -> bool:
    return content[257:262] == b"ustar"


def _is_pickle(content: bytes) -> bool:
    return content[:1] == b"\x80" and content[1:2] in b"\2\3\4\5"


_KINDS: tuple[tuple[Callable[[bytes], bool], _Change], ...] = (
    (lambda content: content.startswith(b"\x93NUMPY"), changed_npy),
    (lambda content: content.startswith(b"PK\3\4"), changed_zip),
    (_is_tar, changed_tar),
    (lambda content: content.startswith(b"$Version="), changed_bin),
    (_is_pickle, changed_pickle),
    (lambda content: content[8:9] == b"{" and b"\0" in content[:8], changed_safetensors),
    (lambda content: content.lstrip()[:1] in (b"{", b"["), changed_json),
)


def mutated(content: bytes, chance: _Chance, *, is_yaml: bool = False) -> bytes:
    """Return what a file may hold in place of what it holds."""
    if not content or chance.random() < 0.15:
        return changed_bytes(content, chance)
    if is_yaml and chance.random() < 0.5:
        return changed_yaml(content, chance)
    for is_one, change in _KINDS:
        if is_one(content):
            return change(content, chance)
    is_text = b"\0" not in content[:1000]
    return (changed_words if is_text else changed_bytes)(content, chance)
