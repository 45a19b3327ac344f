"""What all tables have in common."""

from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

from sqlalchemy import MetaData
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.types import TypeEngine

from firstdrift.catalogue.columns import Exact, Instant, Name, Word
from firstdrift.verdict.judgement import Verdict


class JobState(StrEnum):
    """What has become of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


_ENUMERATIONS = (Verdict, JobState)


class Entry(DeclarativeBase):
    """A row of a table."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, TypeEngine[Any]]] = {
        str: Name(),
        float: Exact(),
        datetime: Instant(),
        **{kind: Word(kind) for kind in _ENUMERATIONS},
    }
