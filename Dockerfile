# syntax=docker/dockerfile:1

# One static binary in an empty image: no shell, no package manager, not root.
#
#   docker build -t otel-bridge .
#   docker run --rm otel-bridge version
#   mkdir -m 700 state
#   docker run --read-only --user "$(id -u):$(id -g)" \
#     -v ~/.dsh:/dsh:ro -v "$PWD/state:/var/lib/otel-bridge" \
#     -v "$PWD/otel-bridge.yaml:/etc/otel-bridge/otel-bridge.yaml:ro" otel-bridge
#
# Ledgers are readable by the agent's user only, so the container runs as that
# user. The only place that is written to is /var/lib/otel-bridge.

FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
WORKDIR /src
# .git comes along: the version is what the go command reads from it. Without it
# the build fails instead of making a program that calls itself "devel".
COPY . .
ARG TARGETOS TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=true -ldflags='-s -w' -o /image/otel-bridge ./cmd/otel-bridge \
    && go version -m /image/otel-bridge | grep vcs.revision
RUN mkdir -p /image/etc/ssl/certs \
    && cp /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ \
    && mkdir -p -m 0700 /state/otel-bridge

FROM scratch
COPY --from=build /image /
COPY --from=build --chown=65532:65532 /state /var/lib
# What is written without a word in the configuration: the data directory, and
# where the sessions of a DSH home are looked for ($DSH_HOME/sessions).
ENV STATE_DIRECTORY=/var/lib/otel-bridge DSH_HOME=/dsh
USER 65532:65532
ENTRYPOINT ["/otel-bridge"]
CMD ["run", "--config", "/etc/otel-bridge/otel-bridge.yaml"]
