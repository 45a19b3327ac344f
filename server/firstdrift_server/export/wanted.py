"""What can be asked for of a comparison as a file."""

from enum import StrEnum

from msgspec import Struct


class Format(StrEnum):
    """As what a comparison is written."""

    HTML = "html"
    MARKDOWN = "md"
    JSON = "json"
    CSV = "csv"
    XLSX = "xlsx"
    LAYER_MAPPING = "layer_mapping"
    DATA_MAPPING = "data_mapping"
    VIEW_MAPPING = "view_mapping"


class Columns(StrEnum):
    """In whose columns tables are written."""

    FIRSTDRIFT = "firstdrift"
    MSIT = "msit"
    MSPROBE = "msprobe"


class Wanted(Struct, frozen=True):
    """What is to be written, and how.

    Attributes:
        columns: of a table.
        language: of a report.
        zipped: whether it is packed as gzip does.
    """

    comparison: int
    written: Format
    columns: Columns = Columns.FIRSTDRIFT
    language: str = "en"
    zipped: bool = False
