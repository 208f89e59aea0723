package tracing

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/credentials"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/certs"
)

// An exporter sends spans to the collector. It counts them, bounds what the log gets, and can be
// cut off.
type exporter struct {
	sdk.SpanExporter
	endpoint, protocol string
	idle               func() // closes connections that are idle
	log                *slog.Logger
	failures           background.LogLimit

	timeout time.Duration   // of a batch, with its retries
	alive   context.Context // ends when the exporter is cut off
	cut     context.CancelFunc

	ended, sent, failed atomic.Int64
	left                atomic.Int64 // spans that were not sent because the exporter was cut off
}

// An address is the address of the collector, with its TLS configuration; nil: no TLS.
type address struct {
	url *url.URL
	tls *tls.Config
}

// newExporter makes the exporter that the environment names. It does not connect.
func newExporter(ctx context.Context, log *slog.Logger) (*exporter, error) {
	e := &exporter{log: log, protocol: "http/protobuf", idle: func() {}}
	e.failures.PerSecond = 1
	if strings.EqualFold(ofSpans("PROTOCOL"), "grpc") {
		e.protocol = "grpc"
	}
	e.timeout = 10 * time.Second
	if ms, err := strconv.Atoi(ofSpans("TIMEOUT")); err == nil { // it was checked
		e.timeout = time.Duration(ms) * time.Millisecond
	}
	to, err := e.address()
	if err != nil {
		return nil, err
	}
	e.endpoint = to.url.String()
	if e.protocol == "grpc" {
		options := []otlptracegrpc.Option{otlptracegrpc.WithEndpointURL(to.url.String()),
			otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig(retry))}
		if to.tls != nil {
			options = append(options, otlptracegrpc.WithTLSCredentials(credentials.NewTLS(to.tls)))
		}
		e.SpanExporter, err = otlptracegrpc.New(ctx, options...)
	} else {
		e.SpanExporter, err = e.newHTTP(ctx, to)
	}
	if err != nil {
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER=otlp: %w", err)
	}
	e.alive, e.cut = context.WithCancel(context.Background())
	return e, nil
}

// address reads where the collector is, and the files for TLS.
func (e *exporter) address() (to address, err error) {
	byDefault := "http://localhost:4318"
	if e.protocol == "grpc" {
		byDefault = "http://localhost:4317"
	}
	if to.url, err = url.Parse(cmp.Or(ofSpans("ENDPOINT"), byDefault)); err != nil {
		return to, fmt.Errorf("%sENDPOINT: %w", forAll, err)
	}
	if to.url.Port() == "" {
		to.url.Host += ":" + map[string]string{"http": "80", "https": "443"}[to.url.Scheme]
	}
	if e.protocol != "grpc" && get(forSpans+"ENDPOINT") == "" {
		to.url = to.url.JoinPath("v1/traces")
	}
	files := certs.ClientFiles{Cert: ofSpans("CLIENT_CERTIFICATE"), Key: ofSpans("CLIENT_KEY"), CA: ofSpans("CERTIFICATE"),
		ServerName: to.url.Hostname()}
	if to.url.Scheme == "http" {
		if files.Cert != "" || files.CA != "" {
			return to, fmt.Errorf("%sENDPOINT: is without TLS, but there are certificates; want https://", forAll)
		}
		return to, nil
	}
	if to.tls, err = files.Config(to.url.Host); err != nil {
		return to, fmt.Errorf("%sCERTIFICATE, CLIENT_CERTIFICATE, CLIENT_KEY: %w", forAll, err)
	}
	return to, nil
}

// retry says how a batch is tried again, and for how long.
var retry = otlptracehttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second,
	MaxElapsedTime: 20 * time.Second}

// newHTTP uses a transport of its own, whose connections end with it.
func (e *exporter) newHTTP(ctx context.Context, to address) (sdk.SpanExporter, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: to.tls, ForceAttemptHTTP2: true,
		MaxIdleConns: 2, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second}
	e.idle = transport.CloseIdleConnections
	client := &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return otlptrace.New(ctx, otlptracehttp.NewClient(otlptracehttp.WithEndpointURL(to.url.String()),
		otlptracehttp.WithHTTPClient(client), otlptracehttp.WithRetry(retry)))
}

// maxReason bounds what the log has of a failure, in bytes: the collector chooses the text.
const maxReason = 300

// ExportSpans sends spans. A failure is counted and logged, once a second at most.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	defer context.AfterFunc(e.alive, cancel)()
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		e.sent.Add(int64(len(spans)))
		return nil
	}
	e.failed.Add(int64(len(spans)))
	if e.alive.Err() != nil {
		e.left.Add(int64(len(spans)))
		return nil
	}
	if ok, skipped := e.failures.Allow(); ok {
		reason := err.Error()
		e.log.Error("could not send spans to the collector", "endpoint", e.endpoint, "spans", len(spans),
			"error", reason[:min(len(reason), maxReason)], "suppressed", skipped)
	}
	return nil
}

// Shutdown ends the exporter.
func (e *exporter) Shutdown(ctx context.Context) error {
	defer e.idle()
	return e.SpanExporter.Shutdown(ctx)
}
