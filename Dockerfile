# The service. docs/service.md says how to build and run it.

FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY js js
# Into a folder of its own, which is all that the next stage takes: neither pip's cache nor the source.
RUN python -m venv /opt/metricdp \
    && /opt/metricdp/bin/pip install --no-cache-dir --only-binary :all: --no-binary metricdp ".[service]"

FROM python:3.13-slim
LABEL org.opencontainers.image.title="metricdp" \
      org.opencontainers.image.description="Reports places under metric differential privacy, over HTTP" \
      org.opencontainers.image.licenses="Apache-2.0"
# A number and not a name, so that a cluster can check that it is not root.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin metricdp \
    && install -d -o 10001 -g 10001 -m 0700 /mechanisms /ledger /keys
COPY --from=build /opt/metricdp /opt/metricdp
ENV PATH=/opt/metricdp/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /mechanisms
# Folders and not files: the log of a ledger lies beside it, and keys and mechanisms are replaced by renaming.
VOLUME ["/mechanisms", "/ledger", "/keys"]
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
ENTRYPOINT ["metricdp", "serve", "--host", "0.0.0.0", "--port", "8080", "--json"]
# Other machines are served with keys only: `metricdp serve` refuses to start without them, unless --open is given.
CMD ["/mechanisms/mechanism.mdp", "--keys", "/keys/keys.json", "--ledger", "/ledger/budgets.db"]
