"""What others wrote is opened by `firstdrift.files` alone, which checks what it opened."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

READS_BY_ITSELF = {
    "firstdrift/files.py": "this is the place",
    "firstdrift/dumps/containers/contents.py": "maps and reads descriptors that files.py has opened",
    "firstdrift/exports/spreadsheets.py": "writes",
    "firstdrift/exports/workbook.py": "writes",
    "firstdrift/catalogue/engine.py": "reads /proc/mounts",
    "firstdrift/tables.py": "lists the tables that come with the package",
    "firstdrift/wording/text.py": "reads the texts that come with the package",
    "firstdrift/dumps/storage/fingerprints.py": "asks for dates of files, and opens none",
    "firstdrift/catalogue/sizes.py": "adds up sizes and dates of files, and opens none",
    "firstdrift/catalogue/backup.py": "copies the database, and reads the backup that the operator names",
    "firstdrift/catalogue/integrity.py": "looks at the first bytes of our own database",
    "firstdrift/cli/group.py": "gives what a closed pipe still gets to nobody",
    "firstdrift/catalogue/private.py": "sees to the modes of our own files",
    "firstdrift/remote/cache.py": "keeps our own copies of remote files",
    "firstdrift/processes/limits.py": "reads how much memory there is from /proc and /sys",
    "server/firstdrift_server/ended.py": "keeps our own list of ended sessions",
    "server/firstdrift_server/tokens.py": "reads the file that the operator names",
    "server/firstdrift_server/uploads/archives.py": "reads our copy of an upload, checks what it unpacked",
    "server/firstdrift_server/uploads/store.py": "keeps our own records of uploads",
    "server/firstdrift_server/uploads/unpacking.py": "locks the folders of uploads, for all servers",
    "server/firstdrift_server/uploads/places.py": "lists the folder of our copy of an upload",
    "firstdrift/support/bundle.py": "reads the log that the operator names, and writes",
    "firstdrift/support/hiding.py": "reads the token that the operator names, to hide it",
    "firstdrift/support/machine.py": "reads the limits of a container from /sys",
    "firstdrift/checkup.py": "asks whether a directory of the settings may be listed",
    "firstdrift/metrics/elementwise/machine_code.py": "keeps our own machine code",
}
"""Who reads files or lists folders in another way, and why that is well."""

OPENING = {
    "open",
    "read_text",
    "read_bytes",
    "mmap",
    "scandir",
    "listdir",
    "walk",
    "iterdir",
    "glob",
    "rglob",
}


def opened_in(file: Path) -> Iterator[str]:
    for found in ast.walk(ast.parse(file.read_text())):
        if not isinstance(found, ast.Call):
            continue
        called = found.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        of = (
            called.value.id
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name)
            else ""
        )
        if name in OPENING and of not in ("ast", "webbrowser"):
            yield f"{file.relative_to(ROOT)}:{found.lineno}: {name}"


def test_no_other_module_opens_files_or_lists_folders() -> None:
    files = [
        file
        for part in ("firstdrift", "server", "worker")
        for file in sorted((ROOT / part).rglob("*.py"))
        if file.relative_to(ROOT).as_posix() not in READS_BY_ITSELF
    ]
    assert len(files) > 100
    assert [found for file in files for found in opened_in(file)] == []


def test_those_that_do_are_there_and_do() -> None:
    assert [name for name in READS_BY_ITSELF if not list(opened_in(ROOT / name))] == []
