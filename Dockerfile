# One image for the web server and for the worker; docker-compose.yml starts both.
#
# PyTorch's CPU build is all that firstdrift needs. Where the default package index has only the CUDA build (several GB),
# name an index that offers the CPU build: docker build --build-arg PIP_EXTRA_INDEX_URL=... .

FROM python:3.12-slim AS build
ARG PIP_EXTRA_INDEX_URL=
WORKDIR /src
COPY . .
RUN python -m venv /opt/firstdrift \
 && /opt/firstdrift/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt .

FROM python:3.12-slim
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
