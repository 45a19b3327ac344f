# One image for the web server and for the worker; docker-compose.yml starts both.
#
# A tag can be moved to another image; a digest cannot: docker build --build-arg BASE=python:3.12-slim-trixie@sha256:... .
# (docker buildx imagetools inspect python:3.12-slim-trixie says the digest of today).
#
# PyTorch's CPU build is all that firstdrift needs. Where the default package index has only the CUDA build (several GB),
# name an index that offers the CPU build: docker build --build-arg PIP_EXTRA_INDEX_URL=... .
# Every file is held against its hash in requirements/; --build-arg TORCH=--any-torch excepts PyTorch.

ARG BASE=python:3.12-slim-trixie

FROM ${BASE} AS build
ARG PIP_EXTRA_INDEX_URL=
ARG TORCH=
# --build-arg EXTRAS= leaves out what PostgreSQL and a Dask cluster need.
ARG EXTRAS=--scale
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY requirements/ requirements/
RUN python -m venv /opt/firstdrift \
 && /opt/firstdrift/bin/python requirements/install.py ${EXTRAS} ${TORCH}
COPY . .
RUN /opt/firstdrift/bin/pip install --no-deps --no-build-isolation . \
 && /opt/firstdrift/bin/python -I -m firstdrift.tables \
 && /opt/firstdrift/bin/python -I -m firstdrift.metrics.elementwise.compiled \
 && /opt/firstdrift/bin/pip check

FROM ${BASE}
COPY --from=build /opt/firstdrift /opt/firstdrift
# The only directory that the process may write to; compiled functions are cached there too.
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin firstdrift \
 && install --directory --owner=firstdrift --group=firstdrift --mode=0700 /data \
 && install --directory --owner=firstdrift --group=firstdrift /dumps
ENV PATH=/opt/firstdrift/bin:$PATH HOME=/data PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8765
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8765/health', timeout=4)"]
ENTRYPOINT ["firstdrift"]
CMD ["server", "--host", "0.0.0.0", "--port", "8765", "--data-dir", "/data", "/dumps"]
