"""Every error that firstdrift raises on purpose.

FirstdriftError                  its text is fit to show to a user
├── DumpError
│   ├── DumpNotFoundError        there is nothing at the path
│   ├── DumpNotRecognisedError   no reader understands what lies there
│   └── DumpUnreadableError      a reader knows the format, but a file that all else hangs on is damaged
├── RolloutUnreadableError       log-probabilities, or a line of them, cannot be used
├── TensorUnreadableError        the data of one tensor cannot be read; the rest of the dump can
├── SettingsError                an option, rule set or mapping that makes no sense
├── LimitError                   it would take more memory or time than it may have
│   └── BusyError                others use all that there is of it just now
├── QuotaError                   whoever asks has had as much as they may for now
├── PathOutsideRootsError        a path leads out of the directories that may be read
├── UploadError                  an upload, or an archive, that cannot be taken
│   └── NoRoomError              there is no room for it
└── CatalogueError
    ├── NotInCatalogueError      no such dump, comparison, node, job
    ├── ConflictError            somebody else has changed it meanwhile
    ├── JobLostError             another worker has taken the job over
    └── JobCancelledError        a person asked for the job to stop
"""

from pathlib import Path
from typing import Any

from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of


class FirstdriftError(Exception):
    """Base of all of them: says what, which file, why, and what to try.

    Attributes:
        message: why, as a clause without a full stop.
        advice: what to try, as a clause without a full stop; None if there is nothing.
        path: the file or directory it is about, if there is one.
    """

    def __init__(
        self, message: Message, *, path: Path | str | None = None, hint: Message | None = None
    ) -> None:
        """Keep the parts apart: the terminal, the page and JSON each lay them out their own way."""
        self.message, self.advice = message, hint
        self.path = Path(path) if path is not None else None
        super().__init__(f"{text_of(self.whole())}.")

    def whole(self) -> Message:
        """Say which file and why, and what to try, within another message."""
        said = Message.of("error.at", path=str(self.path), reason=self.message) if self.path else self.message
        return Message.of("error.advised", reason=said, advice=self.advice) if self.advice else said

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it be sent to another process."""
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(kind: type[FirstdriftError], said: tuple[Any, ...], parts: dict[str, Any]) -> FirstdriftError:
    error = kind.__new__(kind)
    error.args = said
    error.__dict__.update(parts)
    return error


class DumpError(FirstdriftError):
    """A dump as a whole cannot be used."""


class DumpNotFoundError(DumpError):
    """There is nothing at the path."""


class DumpNotRecognisedError(DumpError):
    """No reader understands what lies at the path."""


class DumpUnreadableError(DumpError):
    """The format is known, but a file that all else hangs on is damaged."""


class RolloutUnreadableError(FirstdriftError):
    """Log-probabilities of a rollout or a trainer, or a line of them, cannot be used."""


class TensorUnreadableError(FirstdriftError):
    """The data of one tensor cannot be read."""


class SettingsError(FirstdriftError):
    """An option, a rule set or a mapping file that makes no sense."""


class LimitError(FirstdriftError):
    """It would take more memory or time than it may have."""


class BusyError(LimitError):
    """Others use all that there is of it just now."""


class QuotaError(FirstdriftError):
    """Whoever asks has had as much as they may have for now; `seconds` says when there is more."""

    def __init__(self, message: Message, *, seconds: float, hint: Message | None = None) -> None:
        """Keep when to ask again."""
        super().__init__(message, hint=hint)
        self.seconds = seconds


class PathOutsideRootsError(FirstdriftError):
    """A path leads out of the directories that may be read."""


class UploadError(FirstdriftError):
    """An upload, or an archive in it, that cannot be taken as it is."""


class NoRoomError(UploadError):
    """The disk, or what uploads may take of it, is full."""


class CatalogueError(FirstdriftError):
    """The database cannot do what was asked."""


class NotInCatalogueError(CatalogueError):
    """No such dump, comparison, node or job."""


class ConflictError(CatalogueError):
    """Somebody else has changed it since it was looked at."""


class JobLostError(CatalogueError):
    """The lease of the job ran out and another worker has taken it over."""


class JobCancelledError(CatalogueError):
    """A person asked for the job to stop."""
