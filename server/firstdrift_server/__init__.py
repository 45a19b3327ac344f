"""The web process: pages, JSON API, and the guards around them.

settings = settings_from(roots=["/data/dumps"], port=8765).with_token()
run(settings, announce=print)  # until the process is told to stop
"""

import gc
import os
from collections.abc import Callable
from threading import Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

    from firstdrift_server.settings import Settings


_PREPARE_SECONDS = 0.5
"""The page that is opened at once does not share the processor with what can wait."""


def run(
    settings: "Settings",
    announce: Callable[[str], None] = lambda _: None,
    listener: "socket.socket | None" = None,
) -> None:
    """Serve until the process is told to stop.

    Args:
        settings: what the operator decided.
        announce: given the address as soon as pages are answered.
        listener: the socket at which visitors are waited for; None to open it.

    Raises:
        SettingsError: there is no token, and nobody said that there is to be none.
        SettingsError: the address cannot be listened at, perhaps because another program does.
        CatalogueError: the database cannot be opened.
    """
    if settings.token is None and not settings.no_token:
        from firstdrift.errors import SettingsError
        from firstdrift.wording.message import Message

        raise SettingsError(Message.of("server.no_token"), hint=Message.of("server.make_a_token"))
    # What is imported stays: looking through it for garbage, again and again, is a tenth of the start.
    gc.disable()
    from firstdrift.files import allow_mapping, confine_process
    from firstdrift_server.app import create_app
    from firstdrift_server.connections import serve

    app = create_app(settings)
    gc.freeze()
    gc.enable()
    # Child processes look into dumps. Should this one ever, then where it may, and so that it outlives it.
    confine_process((*settings.roots, settings.uploads))
    allow_mapping(allowed=False)
    with listener or listen(settings) as waiting:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        announce(f"http://{host}:{waiting.getsockname()[1]}/")
        _prepare_soon()
        serve(app, waiting)


def _prepare_soon() -> None:
    """Load what the first visitor of a page would wait for otherwise; the server is ready without."""
    soon = Timer(_PREPARE_SECONDS, _prepare)
    soon.daemon = True
    soon.start()


def _prepare() -> None:
    from firstdrift_frontend import assets, rendering

    rendering.prepare()
    import firstdrift_server.tree.view  # noqa: F401 - brings NumPy

    assets.asset(assets.plotly_build(), "plotly.min.js")
    from firstdrift_server.context import prepare_children

    prepare_children()


def listen(settings: "Settings") -> "socket.socket":
    """Open the socket at which visitors are waited for.

    Raises:
        SettingsError: the address cannot be listened at.
    """
    import socket

    from firstdrift.errors import SettingsError
    from firstdrift.wording.message import Message

    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise SettingsError(
            Message.of(
                "server.cannot_listen",
                host=settings.host,
                port=str(settings.port),
                why=os.strerror(error.errno or 0),
            ),
            hint=Message.of("server.choose_another_port"),
        ) from error
    # Connections inherit it; asyncio sets it only on sockets whose protocol is named, which it is not here.
    # Without it the body of an answer waits up to 40 ms for the visitor's machine to acknowledge the head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
