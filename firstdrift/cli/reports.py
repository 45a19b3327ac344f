"""The files that `firstdrift compare` writes."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import copymode
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, TypeVar

from firstdrift.wording.message import Message

if TYPE_CHECKING:
    from firstdrift.comparison.report import Report

Written = TypeVar("Written")
_FILES: Final = (
    "csv_file",
    "xlsx_file",
    "html_file",
    "advisor_file",
    "data_mapping_file",
    "layer_mapping_file",
    "view_mapping_file",
    "suggested_file",
)


def require_writable(chosen: dict[str, Any]) -> None:
    """Refuse files that cannot be written before hours are spent on what is to be in them."""
    from firstdrift.errors import SettingsError

    for file in filter(None, map(chosen.get, _FILES)):
        if str(file) == "-":
            raise SettingsError(Message.of("cli.not_to_terminal"), hint=Message.of("cli.name_the_file"))
        if not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
            hint = Message.of("cli.make_directory_writable")
            raise SettingsError(Message.of("cli.report_not_writable"), path=file, hint=hint)


def writes_files(chosen: dict[str, Any]) -> bool:
    """Tell whether any file was asked for."""
    return any(map(chosen.get, _FILES))


def write_files(report: "Report", chosen: dict[str, Any]) -> None:
    """Write the files that were asked for.

    Raises:
        SettingsError: one of them cannot be written.
    """
    if not writes_files(chosen):
        return
    from firstdrift.exports.advisor import write_advice
    from firstdrift.exports.mapping_yaml import data_mapping, layer_mapping, write_mapping
    from firstdrift.exports.spreadsheets import write_csv, write_xlsx
    from firstdrift.exports.tool_tables import layout_of_report
    from firstdrift.exports.view_mapping import view_mapping

    columns: str = chosen["columns"]
    writers: dict[str, Callable[[Report, Path], None]] = {
        "csv_file": lambda report, file: write_csv(report, file, layout_of_report(columns, report)),
        "xlsx_file": lambda report, file: write_xlsx(report, file, layout_of_report(columns, report)),
        "html_file": _write_html,
        "advisor_file": write_advice,
        "data_mapping_file": partial(write_mapping, data_mapping),
        "layer_mapping_file": partial(write_mapping, layer_mapping),
        "view_mapping_file": partial(write_mapping, view_mapping),
        "suggested_file": _write_suggested,
    }
    for option, write in writers.items():
        write_file(write, report, chosen[option])


def write_file(write: "Callable[[Written, Path], object]", report: "Written", file: Path | None) -> None:
    """Write a file, if it was asked for.

    Raises:
        SettingsError: it cannot be written.
    """
    from firstdrift.errors import SettingsError

    if file is None:
        return
    try:
        with _whole(file) as part:
            write(report, part)
    except OSError as error:
        why = Message.of("cli.report_not_written", why=error.strerror)
        elsewhere = error.filename if _BESIDE not in str(error.filename) else None
        raise SettingsError(why, path=elsewhere or file) from error


_BESIDE: Final = ".firstdrift-"


@contextmanager
def _whole(file: Path) -> Iterator[Path]:
    """Give the path at which to write a file: it is there when all of it is written, or is as it was.

    What is no file, such as a pipe, and what lies where nothing else may be made, is written as it is.
    """
    there = file.resolve()
    is_plain = not there.exists() or (there.is_file() and os.access(there, os.W_OK))
    if not is_plain or not os.access(there.parent, os.W_OK):
        yield file
        return
    with TemporaryDirectory(prefix=_BESIDE, dir=there.parent) as folder:
        part = Path(folder, there.name)
        yield part
        if there.exists():
            copymode(there, part)
        part.replace(there)


def _write_suggested(report: "Report", file: Path) -> None:
    """Write what may belong together; say so where nothing may."""
    import click

    from firstdrift.exports.match_set_json import write_suggested_matches
    from firstdrift.wording.text import text_of

    if not write_suggested_matches(report, file):
        alone = sum(len(one.plan.unmatched_golden) for one in report.slices)
        click.echo(text_of(Message.of("cli.nothing_to_suggest", file=file.name, alone=alone)), err=True)


def _write_html(report: "Report", file: Path) -> None:
    """Write the report for people."""
    from firstdrift.exports.summary import summary_of
    from firstdrift_frontend.report import report_html

    file.write_text(report_html(summary_of(report)), "utf-8", newline="\n")
