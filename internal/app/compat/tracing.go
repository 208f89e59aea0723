package compat

import (
	"net/url"
	"strings"
)

// ownExporter is a variable that the reference does not read, and headgate does: who sets it says
// by OpenTelemetry's variables what is traced.
const ownExporter = "OTEL_TRACES_EXPORTER"

// exports are OpenTelemetry's variables that are made of the reference's, which beat them, as they do there.
var exports = []mapping{
	{ownExporter, []string{"TRACING_ENABLED"}, always("otlp")},
	{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", []string{"TRACING_EXPORTER_PROTOCOL"},
		word("TRACING_EXPORTER_PROTOCOL", "http or grpc", map[string]string{"http": "http/protobuf", "grpc": "grpc"})},
	{"OTEL_SERVICE_NAME", []string{"TRACING_SERVICE_NAME"}, copy1("TRACING_SERVICE_NAME")},
	{attributes, []string{"TRACING_SERVICE_NAMESPACE", "TRACING_SERVICE_INSTANCE_ID"}, exportAttributes},
	{"OTEL_TRACES_SAMPLER", []string{"TRACING_SAMPLING_RATE"}, always("parentbased_traceidratio")},
	{"OTEL_TRACES_SAMPLER_ARG", []string{"TRACING_SAMPLING_RATE"}, copy1("TRACING_SAMPLING_RATE")},
}

const attributes = "OTEL_RESOURCE_ATTRIBUTES"

// traces makes the variables of OpenTelemetry, if the reference would send traces.
func (t *translation) traces() {
	if !t.on("TRACING_ENABLED") {
		return
	}
	if t.otel[ownExporter] != "" {
		t.note("the TRACING_ variables have no effect, because %s is set: OpenTelemetry's own variables say what is traced",
			ownExporter)
		return
	}
	t.note("TRACING_ENABLED: the trace of a call comes by W3C Trace Context (traceparent), or by B3 headers")
	for i := range exports {
		t.res.Environment = t.apply(&exports[i], t.res.Environment)
	}
}

// exportAttributes adds to the attributes that there are; of two with one name the last one counts.
func exportAttributes(t *translation) []string {
	var list []string
	if there := t.otel[attributes]; there != "" {
		list = append(list, there)
	}
	before := len(list)
	for _, a := range []struct{ key, name string }{
		{"service.namespace", "TRACING_SERVICE_NAMESPACE"}, {"service.instance.id", "TRACING_SERVICE_INSTANCE_ID"},
	} {
		if value := t.text(a.name); value != "" {
			list = append(list, a.key+"="+url.PathEscape(value))
		}
	}
	if len(list) == before {
		return nil
	}
	return []string{strings.Join(list, ",")}
}
