"""The group that all commands belong to, and what becomes of errors."""

import os
import sys

import click

from firstdrift.errors import FirstdriftError
from firstdrift.exits import BROKEN_PIPE, INTERRUPTED, UNUSABLE


class _Commands(click.Group):
    """Shows every error of ours as one message, with exit status 2."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except FirstdriftError as error:
            from firstdrift.paths import printable

            click.secho(printable(f"firstdrift: {error}"), fg="red", err=True)
            ctx.exit(UNUSABLE)
        except EOFError as error:  # click would take it for the end of what somebody types, with status 1
            raise RuntimeError("a file ended where more was expected") from error
        except MemoryError:
            click.secho("firstdrift: it would take more memory than there is.", fg="red", err=True)
            ctx.exit(UNUSABLE)
        except BrokenPipeError:
            # What is left to be written has nowhere to go.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(BROKEN_PIPE)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="firstdrift")
def main() -> None:
    """Find the first token, layer and operator where two runs of a neural network part ways."""
