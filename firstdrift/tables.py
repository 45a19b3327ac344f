"""The TOML files that firstdrift comes with, parsed once and kept as Python keeps compiled modules.

    operators.toml   ─▶   __pycache__/operators.cpython-311.pyc   holds until the file is another one

To parse them at every start would take longer than to read a small dump.

    python -m firstdrift.tables     keep all of them, where later runs may not write
"""

from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any


def tables_of(file: Path) -> dict[str, Any]:
    """Return what a TOML file holds.

    Raises:
        tomllib.TOMLDecodeError: it is none.
    """
    module = ModuleType(file.stem)
    _TomlLoader(file.stem, str(file)).exec_module(module)
    tables: dict[str, Any] = module.TABLES
    return tables


class _TomlLoader(SourceFileLoader):
    """Compiles a TOML file to a module that holds its tables."""

    def source_to_code(self, data: bytes, path: str, *_: object) -> CodeType:  # type: ignore[override]
        import tomllib

        return compile(f"TABLES = {tomllib.loads(data.decode())!r}", path, "exec")


if __name__ == "__main__":
    for _file in Path(__file__).parent.rglob("*.toml"):
        tables_of(_file)
