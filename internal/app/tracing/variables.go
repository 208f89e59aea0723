package tracing

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// A Variable is a row of the table of variables that have an effect.
type Variable struct {
	Name, Default string
	check         func(value string) error // of a value that is not empty
	Meaning       string                   // for the documentation
}

const (
	forSpans = "OTEL_EXPORTER_OTLP_TRACES_" // beats forAll
	forAll   = "OTEL_EXPORTER_OTLP_"
)

// Variables are those of the OpenTelemetry specification that have an effect here.
var Variables = slices.Concat(
	[]Variable{
		{"OTEL_TRACES_EXPORTER", "none", oneOf("otlp", "none"), "`otlp` turns tracing on"},
		{"OTEL_SDK_DISABLED", "false", oneOf("true", "false"), "`true` turns tracing off whatever else is set"},
		{"OTEL_SERVICE_NAME", "headgate", nil, "`service.name` of all spans"},
		{"OTEL_RESOURCE_ATTRIBUTES", "", pairs(false), "more attributes of all spans: `key=value,...`, " +
			"values percent-encoded. Without `service.instance.id` each start has a random one"},
		{"OTEL_TRACES_SAMPLER", "parentbased_always_on",
			oneOf("always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off",
				"parentbased_traceidratio"),
			"which calls get spans; `parentbased_` does as Envoy does where it says so"},
		{"OTEL_TRACES_SAMPLER_ARG", "1", ratio,
			"the part of calls that `traceidratio` and `parentbased_traceidratio` take, 0 to 1"},
	},
	exporterVariables("ENDPOINT", "`http://localhost:4317`, or `:4318` by HTTP", endpoint,
		"URL of the collector. By HTTP, `/v1/traces` is added to it"),
	exporterVariables("PROTOCOL", "http/protobuf", oneOf("grpc", "http/protobuf"), "how spans are sent"),
	exporterVariables("HEADERS", "", pairs(true),
		"headers of each request to the collector: `key=value,...`, values percent-encoded; never logged"),
	exporterVariables("CERTIFICATE", "", nil, "file with the authorities that may vouch for the collector, in PEM"),
	exporterVariables("CLIENT_CERTIFICATE", "", nil, "file with the certificate that is shown to the collector"),
	exporterVariables("CLIENT_KEY", "", nil, "file with its private key"),
	exporterVariables("COMPRESSION", "none", oneOf("gzip", "none"), "of what is sent"),
	exporterVariables("TIMEOUT", "10000", upTo(60_000),
		"how long sending a batch may take, with its retries, in milliseconds"),
	[]Variable{
		{"OTEL_BSP_SCHEDULE_DELAY", "5000", upTo(60_000),
			"how long a span waits at most for others to be sent with, in milliseconds"},
		{"OTEL_BSP_EXPORT_TIMEOUT", "30000", upTo(60_000), "another bound on sending a batch, in milliseconds"},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "2048", upTo(65_536), "how many spans wait to be sent at most; more are dropped"},
		{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "512", upTo(65_536), "how many spans are sent at once"},
	},
)

func exporterVariables(name, byDefault string, check func(string) error, meaning string) []Variable {
	return []Variable{
		{forAll + name, byDefault, check, meaning},
		{forSpans + name, "", check, "the same, for spans alone" +
			map[bool]string{true: "; nothing is added to it"}[name == "ENDPOINT"]},
	}
}

// get returns a variable of the process. As the specification has it, an empty one is not set.
func get(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// ofSpans returns the value of a setting of the exporter.
func ofSpans(name string) string { return cmp.Or(get(forSpans+name), get(forAll+name)) }

// check reports every variable with a value that has no meaning. Values are not in the errors of
// those that may be secret.
func check() error {
	var wrong []error
	for _, v := range Variables {
		if value := get(v.Name); value != "" && v.check != nil {
			if err := v.check(value); err != nil {
				wrong = append(wrong, fmt.Errorf("%s %w", v.Name, err))
			}
		}
	}
	for _, prefix := range []string{forAll, forSpans} {
		if (get(prefix+"CLIENT_CERTIFICATE") == "") != (get(prefix+"CLIENT_KEY") == "") {
			wrong = append(wrong, fmt.Errorf("%sCLIENT_CERTIFICATE needs %[1]sCLIENT_KEY, and the other way round", prefix))
		}
	}
	return errors.Join(wrong...)
}

// others are parts of the names of variables that other programs and other signals have. Nothing is
// said of those.
var others = []string{"_METRIC", "_LOG", "_BLRP_", "OTEL_GO_", "OTEL_RESOURCE_ATTRIBUTES_", "_LIMIT",
	"OTEL_INSTRUMENTATION_"}

// warn logs variables that have no effect, with the name that may have been meant.
func warn(log *slog.Logger, environ []string) {
	var known []string
	for _, v := range Variables {
		known = append(known, v.Name)
	}
	for _, line := range environ {
		name, value, _ := strings.Cut(line, "=")
		switch {
		case !strings.HasPrefix(strings.ToUpper(name), "OTEL_") || strings.TrimSpace(value) == "" || slices.Contains(
			known, name):
		case name == "OTEL_PROPAGATORS":
			if !slices.Contains(strings.Split(value, ","), "tracecontext") {
				log.Warn("OTEL_PROPAGATORS has no effect: headgate reads W3C trace context (tracecontext)", "value", value)
			}
		case slices.ContainsFunc(others, func(part string) bool { return strings.Contains(name, part) }):
		default:
			log.Warn("an unknown OTEL variable has no effect", "variable", name, "did_you_mean", spell.Nearest(name, known))
		}
	}
	if get("OTEL_TRACES_EXPORTER") == "" && ofSpans("ENDPOINT") != "" {
		log.Info("tracing is off: OTEL_TRACES_EXPORTER=otlp turns it on")
	}
}

func oneOf(words ...string) func(string) error {
	return func(v string) error {
		if slices.Contains(words, strings.ToLower(v)) {
			return nil
		}
		hint := ""
		if meant := spell.Nearest(v, words); meant != "" {
			hint = "; did you mean " + meant + "?"
		}
		return fmt.Errorf("must be one of %s, not %q%s", strings.Join(words, ", "), v, hint)
	}
}

func upTo(most int) func(string) error {
	return func(v string) error {
		if n, err := strconv.Atoi(v); err != nil || n < 1 || n > most {
			return fmt.Errorf("must be a number from 1 to %d, not %q", most, v)
		}
		return nil
	}
}

func ratio(v string) error {
	if f, err := strconv.ParseFloat(v, 64); err != nil || !(f >= 0 && f <= 1) {
		return fmt.Errorf("must be a number from 0 to 1, not %q", v)
	}
	return nil
}

// endpoint does not repeat the value: it may have a password.
func endpoint(v string) error {
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("must be a URL such as http://collector:4317 or https://collector:4318")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("must be a URL without user, query and fragment; OTEL_EXPORTER_OTLP_HEADERS may have a token")
	}
	return nil
}

// pairs checks key=value,... Values are not in its errors: headers have tokens.
func pairs(headers bool) func(string) error {
	return func(v string) error {
		for i, p := range strings.Split(v, ",") {
			key, value, found := strings.Cut(p, "=")
			key = strings.TrimSpace(key)
			text, err := url.PathUnescape(value)
			switch {
			case !found || key == "":
				return fmt.Errorf("must be key=value,...: pair %d has no key or no =", i+1)
			case err != nil:
				return fmt.Errorf("must have percent-encoded values: that of %q is not", key)
			case headers && (!httpguts.ValidHeaderFieldName(key) || !httpguts.ValidHeaderFieldValue(text)):
				return fmt.Errorf("must have headers: pair %d is none", i+1)
			}
		}
		return nil
	}
}
