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

# The librados here may be older than the cluster: Ceph keeps clients of older releases working.
FROM debian:bookworm-slim AS lockkeeper-worker
RUN apt-get update && apt-get install -y --no-install-recommends librados2 ca-certificates && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/lockkeeper-worker /usr/local/bin/lockkeeper-worker
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/lockkeeper-worker"]
