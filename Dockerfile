# Two images from one file:
#   docker build --target lockkeeper -t lockkeeper:dev .                 command line and watcher: one static binary
#   docker build --target lockkeeper-worker -t lockkeeper-worker:dev .   the worker, with librados
FROM golang:1.26-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends librados-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY activities activities
COPY api api
COPY cli cli
COPY cmd cmd
COPY deploy deploy
COPY internal internal
COPY starter starter
COPY worker worker
COPY workflows workflows
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /out/lockkeeper ./cmd/lockkeeper \
 && go build -trimpath -ldflags="-s -w" -o /out/lockkeeper-worker ./cmd/lockkeeper-worker

FROM scratch AS lockkeeper
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/lockkeeper /usr/local/bin/lockkeeper
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/lockkeeper"]

# Older clusters take newer clients. Newer clusters do not take older ones: those made since August 2026 have keys of type AES256K
# (CVE-2025-30156), which librados knows from 20.2.4 on.
FROM debian:forky-slim AS lockkeeper-worker
RUN apt-get update && apt-get install -y --no-install-recommends librados2 ca-certificates && rm -rf /var/lib/apt/lists/* \
 && dpkg --compare-versions "$(dpkg-query --show --showformat '${Version}' librados2)" ge 20.2.4
COPY --from=build /out/lockkeeper-worker /usr/local/bin/lockkeeper-worker
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/lockkeeper-worker"]
