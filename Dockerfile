# The programs are built on the machine's own architecture, for that of the image.
FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETARCH
ARG VERSION=dev
RUN CGO_ENABLED=0 GOARCH=${TARGETARCH} go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" -o /image/headgate ./cmd/headgate \
 && mkdir -p /image/bin && ln -s /headgate /image/bin/headgate && ln -s /headgate /image/bin/ratelimit \
 && ln -s /headgate /image/bin/ratelimit_client && ln -s /headgate /image/bin/ratelimit_config_check

FROM scratch
# For TLS to servers whose certificates public authorities issued.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
# /headgate, and /bin/ratelimit, which manifests for envoyproxy/ratelimit run: the same program under that name,
# and under those of its client and of its check of rules.
COPY --from=build /image/ /
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="headgate" \
      org.opencontainers.image.description="An external rate-limit service for Envoy and Istio" \
      org.opencontainers.image.source="https://github.com/headgate-rls/headgate" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
USER 65532:65532
# the service, HTTP, debug, other gRPC services
EXPOSE 8081 8080 6070 8082
# Rules are those in /rules, unless --rules names others; to try the image: serve --example. With the environment of
# envoyproxy/ratelimit, and no setting of headgate, serve does what /bin/ratelimit does.
ENTRYPOINT ["/headgate"]
CMD ["serve"]
