import socket

from firstdrift_server import listen
from firstdrift_server.settings import Settings


def test_answers_do_not_wait_for_visitors_to_acknowledge_their_heads() -> None:
    with (
        listen(Settings(port=0)) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as connection,
    ):
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
