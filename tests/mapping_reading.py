"""One mapping file, read as `compare` reads those that it is given."""

from pathlib import Path

from firstdrift.matching.manual.mapping import MappingFile
from firstdrift.matching.manual.match_set_file import read_matches


def read_mapping(path: Path) -> MappingFile:
    """Read a mapping file of any of the five kinds, or the one in a directory of msit's."""
    (mapping,) = read_matches((path,)).mappings
    return mapping
