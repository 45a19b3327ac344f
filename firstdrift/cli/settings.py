"""Where a server listens, and where its database lies, as options of commands."""

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from firstdrift.wording.message import Message

if TYPE_CHECKING:
    from firstdrift_server.settings import Settings

NO_SERVER: Final = {"host": "127.0.0.1", "token": "", "token_file": ""}
"""Where to listen, and to whom, is the server's business: others start without a token, and make none up."""


def _refuse_token(_ctx: click.Context, _option: click.Parameter, given: str | None) -> None:
    if given is not None:
        from firstdrift.errors import SettingsError

        raise SettingsError(Message.of("cli.token_on_command_line"), hint=Message.of("cli.token_elsewhere"))


def _refuse_password(_ctx: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    if given is not None and _PASSWORD.search(given):
        from firstdrift.errors import SettingsError

        raise SettingsError(Message.of("cli.password_on_command_line"), hint=Message.of("cli.url_elsewhere"))
    return given


_PASSWORD = re.compile(r"//[^/@]*:[^/@]+@|[?&]password=", re.IGNORECASE)
_DATA_DIR = click.option("--data-dir", type=click.Path(path_type=Path), help="Where the database lies.")
_DATABASE_URL = click.option(
    "--database-url",
    callback=_refuse_password,
    help="SQLAlchemy URL of a database, instead of SQLite in --data-dir; one with a password belongs into"
    " FIRSTDRIFT_DATABASE_URL.",
)


_LOG_FORMAT = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="How to log to standard error: lines for people (text), or one JSON object a line.",
)


def log_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option that says how it logs."""
    return _LOG_FORMAT(command)


def database_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say where the database lies."""
    return _DATA_DIR(_DATABASE_URL(command))


def server_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a server."""
    for option in (
        click.option("--host", help="Address to listen at (127.0.0.1); beyond loopback a token is needed."),
        click.option("--port", type=click.IntRange(0, 65535), help="Port to listen at (8765)."),
        _DATA_DIR,
        _DATABASE_URL,
        _LOG_FORMAT,
        click.option(
            "--token", hidden=True, expose_value=False, callback=_refuse_token, help="Use --token-file."
        ),
        click.option(
            "--token-file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Holds the token that visitors must show; only its owner may be able to read it. Without it,"
            " and without FIRSTDRIFT_TOKEN, a token is made up and printed in the address.",
        ),
        click.option(
            "--no-token",
            is_flag=True,
            default=None,
            help="Ask for no token: everybody with an account on this machine can read, change and delete.",
        ),
    ):
        command = option(command)
    return command


def settings_of(roots: tuple[Path, ...], chosen: dict[str, Any]) -> "Settings":
    """Make settings of what was chosen; the current directory is the root where none is."""
    from firstdrift_server.settings import settings_from

    settings = settings_from(roots=roots or None, **chosen)
    return settings if settings.roots else settings_from(roots=(Path.cwd(),), **chosen)


def server_settings(roots: tuple[Path, ...], chosen: dict[str, Any]) -> "Settings":
    """Make the settings of a server of what was chosen, and say so if it asks for no token."""
    from firstdrift.logs import set_up

    settings = settings_of(roots, chosen)
    set_up(settings.log_format)
    prepare_data_dir(settings)
    settings = settings.with_token()
    if settings.token is None:
        listed = ", ".join(map(str, settings.roots))
        warning = (
            "firstdrift: no token is asked for: everybody with an account on this machine can read every dump"
            f" under {listed}, and change and delete what firstdrift keeps in {settings.data_dir}"
        )
        _warn(settings, warning)
    return settings


def _warn(settings: "Settings", warning: str) -> None:
    if settings.log_format == "text":
        click.secho(warning, fg="red", err=True)
    else:
        logging.getLogger("firstdrift.server").warning("%s", warning)


def prepare_data_dir(settings: "Settings") -> None:
    """Make the data directory; it, and what is written from now on, is for its owner alone."""
    from firstdrift.catalogue.private import keep_to_owner, make_folder
    from firstdrift_server.settings import default_data_dir

    os.umask(0o077)
    make_folder(settings.data_dir)
    for change in keep_to_owner(settings.data_dir, is_default=settings.data_dir == default_data_dir()):
        logging.getLogger("firstdrift.server").warning("firstdrift: %s", change)
