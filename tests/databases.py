"""Databases for the tests: a file of SQLite, and a PostgreSQL server of our own where there is one."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from sqlalchemy import create_engine

DEBIANS_SERVERS = Path("/usr/lib/postgresql")


def why_no_postgresql() -> str | None:
    """Say why there can be no PostgreSQL here; None if there can."""
    if find_spec("psycopg") is None:
        return "psycopg is not installed"
    return None if _program("initdb") else "PostgreSQL is not installed"


@contextmanager
def postgresql_server() -> Iterator[str]:
    """Run a server while the block runs; give the address of its first database."""
    user = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="firstdrift-postgresql-"))
    folder.chmod(0o755)
    if user:
        shutil.chown(folder, **user)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data, log = folder / "data", folder / "log"
    settings = f"-p {port} -k {folder} -c fsync=off -c listen_addresses=127.0.0.1"
    start = [_program("pg_ctl"), "-D", data, "-l", log, "-w", "-o", settings, "start"]
    quietly = {"cwd": folder, "stdout": subprocess.DEVNULL, **user}
    create = [_program("initdb"), "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8"]
    subprocess.run(create, check=True, **quietly)
    subprocess.run(start, check=True, **quietly)
    try:
        yield f"postgresql+psycopg://tester@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([_program("pg_ctl"), "-D", data, "-m", "immediate", "stop"], check=True, **quietly)
        shutil.rmtree(folder, ignore_errors=True)


_numbers = count()


def new_postgresql_database(server: str) -> str:
    """Make an empty database on a server; return its address."""
    name = f"test{next(_numbers)}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return server.removesuffix("postgres") + name


def _program(name: str) -> str | None:
    debian = sorted(DEBIANS_SERVERS.glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(debian[-1]) if debian else None)
