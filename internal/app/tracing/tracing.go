package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate-rls/headgate/ratelimit"
	spans "github.com/headgate-rls/headgate/tracing"
)

// Tracing makes spans and sends them.
type Tracing struct {
	// Tracer makes spans. Ending a span does not wait for the collector.
	Tracer   ratelimit.Tracer
	provider *sdk.TracerProvider
	exporter *exporter
}

// Open returns the tracing that the environment asks for; nil if it asks for none. It fails if a
// variable has a value without meaning, and logs unknown variables. The collector need not answer.
// The caller closes it.
func Open(ctx context.Context, log *slog.Logger, version string) (*Tracing, error) {
	warn(log, os.Environ())
	if err := check(); err != nil {
		return nil, err
	}
	if !strings.EqualFold(get("OTEL_TRACES_EXPORTER"), "otlp") || strings.EqualFold(get("OTEL_SDK_DISABLED"), "true") {
		return nil, nil
	}
	own, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "headgate"), attribute.String("service.version", version),
			attribute.String("service.instance.id", uuid.NewString())), // until the next start
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	e, err := newExporter(ctx, log)
	if err != nil {
		return nil, err
	}
	t := &Tracing{exporter: e}
	t.provider = sdk.NewTracerProvider(sdk.WithResource(own),
		sdk.WithSpanProcessor(counting{sdk.NewBatchSpanProcessor(e), e}))
	t.Tracer = spans.OpenTelemetry(
		t.provider.Tracer("github.com/headgate-rls/headgate", trace.WithInstrumentationVersion(version)))
	log.Info("tracing", "endpoint", e.endpoint, "protocol", e.protocol)
	return t, nil
}

// closeWithin bounds how long Close sends what waits, and afterLast how long it then waits for
// what it has cut off.
const (
	closeWithin = 1500 * time.Millisecond
	afterLast   = 400 * time.Millisecond
)

// Close sends what waits, for at most two seconds.
func (t *Tracing) Close() error {
	cut := time.AfterFunc(closeWithin, t.exporter.cut)
	defer cut.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin+afterLast)
	defer cancel()
	err := t.provider.Shutdown(ctx)
	if t.exporter.left.Load() > 0 {
		err = errors.Join(err, fmt.Errorf("the collector did not take %d spans in time", t.exporter.left.Load()))
	}
	return err
}

// counting counts the spans that end.
type counting struct {
	sdk.SpanProcessor
	exporter *exporter
}

func (c counting) OnEnd(s sdk.ReadOnlySpan) {
	c.exporter.ended.Add(1)
	c.SpanProcessor.OnEnd(s)
}
