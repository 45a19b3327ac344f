"""The files that `firstdrift compare` writes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from firstdrift.comparison.report import Report

_FILES: Final = ("csv_file", "xlsx_file", "html_file", "data_mapping_file", "layer_mapping_file")


def require_writable(chosen: dict[str, Any]) -> None:
    """Refuse files that cannot be written before hours are spent on what is to be in them."""
    from firstdrift.errors import SettingsError

    for file in filter(None, map(chosen.get, _FILES)):
        if str(file) == "-":
            raise SettingsError("a report is written to a file, not to the terminal", hint="Give it a name")
        if not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
            raise SettingsError(
                "the report cannot be written there",
                path=file,
                hint="The directory must exist, and it must be allowed to write to it",
            )


def write_files(report: "Report", chosen: dict[str, Any]) -> None:
    """Write the files that were asked for.

    Raises:
        SettingsError: one of them cannot be written.
    """
    if not any(map(chosen.get, _FILES)):
        return
    from firstdrift.errors import SettingsError
    from firstdrift.exports.mapping_yaml import write_data_mapping, write_layer_mapping
    from firstdrift.exports.spreadsheets import write_csv, write_xlsx

    writers: dict[str, Callable[[Report, Path], None]] = {
        "csv_file": write_csv,
        "xlsx_file": write_xlsx,
        "html_file": _write_html,
        "data_mapping_file": write_data_mapping,
        "layer_mapping_file": write_layer_mapping,
    }
    for option, write in writers.items():
        file = chosen[option]
        if file is None:
            continue
        try:
            write(report, file)
        except OSError as error:
            raise SettingsError(
                f"the report could not be written ({error.strerror})", path=error.filename or file
            ) from error


def _write_html(report: "Report", file: Path) -> None:
    """Write the report for people."""
    from firstdrift.exports.summary import summary_of
    from firstdrift_frontend.report import report_html

    file.write_text(report_html(summary_of(report)), "utf-8", newline="\n")
