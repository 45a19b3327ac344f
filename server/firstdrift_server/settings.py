"""Settings of the server, from the command line and from FIRSTDRIFT_* variables.

FIRSTDRIFT_ROOTS=/data/dumps:/scratch/dumps FIRSTDRIFT_HOST=0.0.0.0 FIRSTDRIFT_TOKEN=... firstdrift server
"""

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ByteSize, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from firstdrift.catalogue.engine import database_url as embedded_database
from firstdrift.catalogue.private import ENDED_SESSIONS, UPLOADS
from firstdrift.errors import SettingsError
from firstdrift.groups import known_items
from firstdrift.processes.limits import GIB, memory_of_machine
from firstdrift.wording.message import Message, joined, verbatim
from firstdrift_server.tokens import MadeToken, new_token, read_token, weakness
from firstdrift_server.validation import InvalidValueError

_MOST_JOB_MEMORY = 8 * GIB

_OF_TOKEN = frozenset({"token", "token_file"})


def usual_job_memory() -> ByteSize:
    """Return how much memory each process of a worker may have: half of what there is, 8 GiB at most."""
    return ByteSize(min(_MOST_JOB_MEMORY, memory_of_machine() // 2))


def default_data_dir() -> Path:
    """Return where the database lies unless something else is said."""
    share = os.environ.get("XDG_DATA_HOME", "")
    return (Path(share) if share else Path.home() / ".local" / "share") / "firstdrift"


class Settings(BaseSettings):
    """What the operator decides.

    Attributes:
        roots: the directories that may be browsed and read.
        host: the address to listen at; beyond loopback a token is required.
        port: the port to listen at; 0 lets the system choose one.
        data_dir: where the database lies.
        database_url: SQLAlchemy URL of another database; None for SQLite in `data_dir`.
        token: the secret that lets a visitor in; None until one is made up, or where there is to be none.
        token_file: holds the token, instead of `token`; nobody else may be able to read it.
        no_token: whoever reaches the server is let in; on loopback only.
        allowed_hosts: further names by which browsers may address this server, such as a proxy's.
        workers: processes that measure; 0 for one per core.
        cluster: address of the scheduler of a Dask cluster that compares for the worker; None for none.
        largest_body: bytes of a request body that are accepted.
        upload_quota: how much uploads may take below `data_dir`, such as 50GiB; 0 switches them off.
        job_memory: how much memory each process of a worker may have, such as 8GiB.
        reading_seconds: processor time that reading one slice of a dump may take.
        open_metrics: whether /metrics is shown to whoever reaches the server.
        log_format: how server and worker log: lines for people, or JSON.
    """

    # An error must not quote what it is about: it may be the token, or the password of the database.
    model_config = SettingsConfigDict(
        env_prefix="FIRSTDRIFT_",
        env_ignore_empty=True,
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
    )

    roots: Annotated[tuple[Path, ...], NoDecode] = ()
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8765
    data_dir: Path = Field(default_factory=default_data_dir)
    database_url: str | None = None
    token: SecretStr | None = None
    token_file: Path | None = None
    no_token: bool = False
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    workers: Annotated[int, Field(ge=0)] = 0
    cluster: str | None = None
    largest_body: Annotated[int, Field(ge=1024)] = 1 << 20
    upload_quota: ByteSize = ByteSize(50 << 30)
    job_memory: Annotated[ByteSize, Field(ge=256 << 20)] = Field(default_factory=usual_job_memory)
    reading_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 600.0
    open_metrics: bool = False
    log_format: Literal["text", "json"] = "text"

    @field_validator("roots", mode="before")
    @classmethod
    def _split_paths(cls, value: object) -> object:
        """Take paths from a variable as PATH has them: separated by colons (semicolons on Windows)."""
        return list(filter(None, value.split(os.pathsep))) if isinstance(value, str) else value

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        """Take names from a variable separated by commas."""
        return [part.strip() for part in value.split(",") if part] if isinstance(value, str) else value

    @field_validator("roots")
    @classmethod
    def _roots_exist(cls, roots: tuple[Path, ...]) -> tuple[Path, ...]:
        for root in roots:
            if not root.is_dir():
                raise InvalidValueError(Message.of("server.root_is_no_directory", root=str(root)))
        return tuple(root.resolve() for root in roots)

    @model_validator(mode="before")
    @classmethod
    def _one_token(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Read the token from its file, if there is one; what is empty was not given."""
        kept = {name: value for name, value in given.items() if name not in _OF_TOKEN or value}
        if "token_file" not in kept:
            return kept
        if "token" in kept:
            raise InvalidValueError(Message.of("server.token_and_file"))
        return kept | {"token": read_token(Path(kept["token_file"]))}

    @field_validator("token")
    @classmethod
    def _token_is_strong(cls, token: SecretStr | None) -> SecretStr | None:
        weak = None if token is None else weakness(token.get_secret_value())
        if weak is not None:
            raise InvalidValueError(Message.of("server.weak_token", why=weak))
        return token

    @model_validator(mode="after")
    def _strangers_need_a_token(self) -> "Settings":
        if self.token is not None and self.no_token:
            raise InvalidValueError(Message.of("server.token_and_no_token"))
        if self.token is None and not is_loopback(self.host):
            raise InvalidValueError(Message.of("server.others_could_reach", host=self.host))
        return self

    def with_token(self) -> "Settings":
        """Return these settings with a token made up, unless there is one, or is to be none.

        To be called once, before anything is served: whoever makes one up again lets nobody in that was.
        """
        if self.token is not None or self.no_token:
            return self
        return self.model_copy(update={"token": new_token()})

    @property
    def shown_token(self) -> str | None:
        """The token if it was made up here, so that it has to be told; never the operator's own."""
        return self.token.get_secret_value() if isinstance(self.token, MadeToken) else None

    @property
    def secret(self) -> str | None:
        """The token in plain text, for comparing."""
        return self.token.get_secret_value() if self.token is not None else None

    @property
    def uploads(self) -> Path:
        """Where uploads lie."""
        return self.data_dir.resolve() / UPLOADS

    @property
    def ended_sessions(self) -> Path:
        """The file of the sessions that were ended by logging out."""
        return self.data_dir.resolve() / ENDED_SESSIONS

    @property
    def database(self) -> str:
        """The SQLAlchemy URL of the database."""
        return self.database_url or embedded_database(self.data_dir)


def settings_from(**chosen: Any) -> Settings:  # noqa: ANN401 - whatever the command line gives is checked here
    """Make settings from options (None: not chosen) and, where there is none, FIRSTDRIFT_* variables.

    Raises:
        SettingsError: an option makes no sense, or listening beyond loopback without a token.
    """
    try:
        return Settings(**known_items(chosen))
    except ValidationError as exc:
        raise SettingsError(joined(*map(_describe, exc.errors()))) from exc


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _describe(problem: Mapping[str, Any]) -> Message:
    raised = problem.get("ctx", {}).get("error")
    why = raised.message if isinstance(raised, InvalidValueError) else verbatim(problem["msg"])
    return (
        Message.of("server.invalid_setting", name=str(problem["loc"][0]), why=why) if problem["loc"] else why
    )
