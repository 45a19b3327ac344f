"""Servers to attack: one that stands open on this machine, one behind a token."""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from firstdrift_server.app import create_app
from firstdrift_server.brake import Brake
from firstdrift_server.settings import settings_from


def pytest_report_header() -> str:
    """Say what is attacked: `make security-oldest` runs the same tests with other versions."""
    names = ("fastapi", "h11", "jinja2", "starlette", "uvicorn")
    return "attacked: " + ", ".join(f"{name} {version(name)}" for name in names)


@pytest.fixture(scope="package")
def token() -> str:
    return "correct horse battery staple, seven times a day"


@pytest.fixture(scope="package")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """The application as it runs on somebody's own machine."""
    folder = tmp_path_factory.mktemp("open")
    return create_app(settings_from(roots=[folder], data_dir=folder))


@pytest.fixture(scope="package")
def locked_app(tmp_path_factory: pytest.TempPathFactory, token: str) -> FastAPI:
    """The application as it runs where others can reach it."""
    folder = tmp_path_factory.mktemp("locked")
    return create_app(settings_from(roots=[folder], data_dir=folder, token=token, host="0.0.0.0"))  # noqa: S104


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, base_url="http://localhost:8765", follow_redirects=False) as client:
        yield client


@pytest.fixture
def stranger(locked_app: FastAPI) -> Iterator[TestClient]:
    """Somebody who has not shown the token, nor has anybody else shown a wrong one; no wait ends."""
    locked_app.state.context.sessions._brake = Brake(clock=lambda: 0.0)
    with TestClient(locked_app, base_url="http://localhost:8765", follow_redirects=False) as client:
        yield client


@pytest.fixture
def folder(app: FastAPI) -> Path:
    """The one root of `app`."""
    root: Path = app.state.context.settings.roots[0]
    return root
