package compat

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A mapping is a row of the table of settings, or of that of OpenTelemetry's variables: which variables of the
// reference make it, and how.
type mapping struct {
	name string // as [Setting] has it
	from []string
	make func(t *translation) []string // nil: the setting keeps headgate's default, and the variable stays as it is
}

// mappings are the settings of headgate that this mode sets. Those without variables are what the
// reference does always.
var mappings = []mapping{
	{"http", []string{"HOST", "PORT"}, func(t *translation) []string { return t.address("HOST", "PORT") }},
	{"grpc", []string{"GRPC_UDS", "GRPC_HOST", "GRPC_PORT"}, grpcAddress},
	{"debug", []string{"DEBUG_HOST", "DEBUG_PORT"}, debugAddress},
	{"services", nil, always("")}, // the reference has no such port
	copied("grpc-max-connection-age", "GRPC_MAX_CONNECTION_AGE"),
	copied("grpc-max-connection-age-grace", "GRPC_MAX_CONNECTION_AGE_GRACE"),

	{"grpc-tls-cert", []string{"GRPC_SERVER_USE_TLS", "GRPC_SERVER_TLS_CERT"}, serverCertificate},
	{"grpc-tls-key", []string{"GRPC_SERVER_USE_TLS", "GRPC_SERVER_TLS_KEY"},
		when(isOn("GRPC_SERVER_USE_TLS"), copy1("GRPC_SERVER_TLS_KEY"))},
	{"grpc-client-ca", []string{"GRPC_CLIENT_TLS_CACERT", "GRPC_SERVER_TLS_CA_CERT"}, clientCA},
	{"grpc-client-auth", []string{"GRPC_SERVER_TLS_CA_CERT"}, clientAuth},
	{"grpc-client-san", []string{"GRPC_CLIENT_TLS_SAN"}, clientName},

	{"log-level", []string{"LOG_LEVEL"}, anyCase("LOG_LEVEL", "trace, debug, info, warn, error, fatal or panic",
		map[string]string{"trace": "debug", "debug": "debug", "info": "info", "warn": "warn", "warning": "warn",
			"error": "error", "fatal": "error", "panic": "error"})},
	{"log-format", []string{"LOG_FORMAT"}, anyCase("LOG_FORMAT", "text or json", map[string]string{"text": "text",
		"json": "logrus"})},

	{"rules", []string{"CONFIG_TYPE", "RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY",
		"RUNTIME_WATCH_ROOT"}, rules},
	{"rules-files", []string{"RUNTIME_IGNOREDOTFILES"}, when(byFiles, either("RUNTIME_IGNOREDOTFILES", "all", "dot"))},
	{"rules-empty", []string{"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"},
		when(byFiles, either("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "false", "true"))},
	copied("merge-domains", "MERGE_DOMAIN_CONFIG"),

	{"xds", []string{"CONFIG_TYPE", "CONFIG_GRPC_XDS_SERVER_URL"}, when(byXDS, copy1("CONFIG_GRPC_XDS_SERVER_URL"))},
	{"xds-node-id", []string{"CONFIG_GRPC_XDS_NODE_ID"}, when(byXDS, copy1("CONFIG_GRPC_XDS_NODE_ID"))},
	{"xds-node-metadata", []string{"CONFIG_GRPC_XDS_NODE_METADATA"}, when(byXDS, list("CONFIG_GRPC_XDS_NODE_METADATA"))},
	{"xds-header", []string{"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"},
		when(byXDS, list("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"))},
	{"xds-tls", []string{"CONFIG_GRPC_XDS_SERVER_USE_TLS"},
		when(byXDS, when(isOn("CONFIG_GRPC_XDS_SERVER_USE_TLS"), always("true")))},
	{"xds-tls-cert", []string{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT"}, when(byXDS, xdsFile("CONFIG_GRPC_XDS_CLIENT_TLS_CERT"))},
	{"xds-tls-key", []string{"CONFIG_GRPC_XDS_CLIENT_TLS_KEY"}, when(byXDS, xdsFile("CONFIG_GRPC_XDS_CLIENT_TLS_KEY"))},
	{"xds-tls-ca", []string{"CONFIG_GRPC_XDS_SERVER_TLS_CACERT"},
		when(byXDS, xdsFile("CONFIG_GRPC_XDS_SERVER_TLS_CACERT"))},
	{"xds-tls-server-name", []string{"CONFIG_GRPC_XDS_SERVER_TLS_SAN"},
		when(byXDS, xdsFile("CONFIG_GRPC_XDS_SERVER_TLS_SAN"))},
	{"xds-max-message", []string{"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"}, when(byXDS, xdsMaxMessage)},
	{"xds-wait", []string{"FORCE_START_WITHOUT_INITIAL_CONFIG"},
		when(byXDS, when(isOn("FORCE_START_WITHOUT_INITIAL_CONFIG"), always("0s")))},
	{"xds-health", []string{"FORCE_START_WITHOUT_INITIAL_CONFIG", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"},
		when(byXDS, xdsHealth)},

	{"backend", []string{"BACKEND_TYPE", "REDIS_TYPE", "REDIS_SOCKET_TYPE", "REDIS_URL", "REDIS_AUTH", "REDIS_AUTH_FILE",
		"REDIS_SENTINEL_AUTH", "REDIS_AWS_IAM_AUTH",
		"REDIS_TLS", "REDIS_TLS_CLIENT_CERT", "REDIS_TLS_CLIENT_KEY", "REDIS_TLS_CACERT",
		"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
		"REDIS_POOL_SIZE", "REDIS_TIMEOUT", "CACHE_KEY_PREFIX", "REDIS_LAYOUT", "EXPIRATION_JITTER_MAX_SECONDS"}, backend},

	{"call-timeout", []string{"REDIS_TIMEOUT"}, copy1("REDIS_TIMEOUT")},

	{"backend-per-second", []string{"REDIS_PERSECOND", "REDIS_PERSECOND_TYPE", "REDIS_PERSECOND_SOCKET_TYPE",
		"REDIS_PERSECOND_URL", "REDIS_PERSECOND_AUTH", "REDIS_PERSECOND_AUTH_FILE", "REDIS_PERSECOND_SENTINEL_AUTH",
		"REDIS_PERSECOND_TLS", "REDIS_PERSECOND_POOL_SIZE", "REDIS_PERSECOND_TIMEOUT"}, perSecondBackend},

	// Refused requests count, unless they are not to.
	{"charge", []string{stopIncrement}, either(stopIncrement, "all_or_nothing", "each")},
	{"overflow", nil, always("saturate")}, // costs that Envoy reports after the response count
	{"reference-answers", nil, always("true")},
	{"retry-after-header", nil, always("")},
	{"rule-metadata", nil, always("false")},
	{"on-backend-error", nil, always("error")},
	{"backend-required", nil, always("true")},
	copied("shadow-mode", "SHADOW_MODE"),
	copied("quota-mode", "QUOTA_MODE"),
	copied("calendar-months", "USE_CALENDAR_MONTH_RATE_LIMIT"),
	copied("dynamic-metadata", "RESPONSE_DYNAMIC_METADATA"),
	copied("response-headers", "LIMIT_RESPONSE_HEADERS_ENABLED"),
	copied("limit-header", "LIMIT_LIMIT_HEADER"),
	copied("remaining-header", "LIMIT_REMAINING_HEADER"),
	copied("reset-header", "LIMIT_RESET_HEADER"),

	{"metrics", []string{"USE_PROMETHEUS", "PROMETHEUS_ADDR", "PROMETHEUS_MAPPER_YAML"}, metrics},
	{"metrics-path", []string{"PROMETHEUS_PATH"},
		when(isOn("USE_PROMETHEUS"), when(isSet("PROMETHEUS_PATH"), copy1("PROMETHEUS_PATH")))},
	{"reference-metrics", nil, always("true")},
	{"reference-local-cache", []string{localCache}, when(hasLocalCache, always("true"))},
	copied("near-limit-ratio", "NEAR_LIMIT_RATIO"),
	{"statsd", []string{"USE_STATSD", "USE_DOG_STATSD", "STATSD_HOST", "STATSD_PORT", "DISABLE_STATS"}, statsd},
	{"statsd-protocol", []string{"STATSD_PROTOCOL", "USE_DOG_STATSD"}, when((*translation).sendsStats, statsdProtocol)},
	{"statsd-tag", []string{"EXTRA_TAGS"}, extraTags},
	{"statsd-interval", []string{"STATS_FLUSH_INTERVAL"}, when((*translation).sendsStats, copy1("STATS_FLUSH_INTERVAL"))},
}

// hasLocalCache is the condition that the reference would keep what is used up in its memory.
func hasLocalCache(t *translation) bool { return t.set(localCache) && t.text(localCache) != "0" }

// Makes returns what is made of a variable: settings, as their flags, and variables of OpenTelemetry.
func Makes(variable string) (names []string) {
	for i := range mappings {
		if slices.Contains(mappings[i].from, variable) {
			names = append(names, "--"+mappings[i].name)
		}
	}
	for i := range exports {
		if slices.Contains(exports[i].from, variable) {
			names = append(names, exports[i].name)
		}
	}
	return names
}

// always returns what makes a setting of nothing.
func always(value string) func(*translation) []string {
	return func(*translation) []string { return []string{value} }
}

// copied is the row of a setting that takes a variable as it is, if it is set.
func copied(flag, name string) mapping {
	return mapping{flag, []string{name}, when(isSet(name), copy1(name))}
}

// when makes a setting only if a condition holds.
func when(holds func(*translation) bool, f func(*translation) []string) func(*translation) []string {
	return func(t *translation) []string {
		if !holds(t) {
			return nil
		}
		return f(t)
	}
}

// isSet is the condition that a variable is set.
func isSet(name string) func(*translation) bool {
	return func(t *translation) bool { return t.set(name) }
}

// isOn is the condition that a variable is true.
func isOn(name string) func(*translation) bool {
	return func(t *translation) bool { return t.on(name) }
}

// either makes a setting of whether a variable is true.
func either(name, yes, no string) func(*translation) []string {
	return func(t *translation) []string { return []string{map[bool]string{true: yes, false: no}[t.on(name)]} }
}

// word makes a setting of a variable that is one of some words.
func word(name, want string, words map[string]string) func(*translation) []string {
	return func(t *translation) []string { return oneOf(t, name, t.text(name), want, words) }
}

// anyCase is word in any case, if the variable is set.
func anyCase(name, want string, words map[string]string) func(*translation) []string {
	return when(isSet(name), func(t *translation) []string {
		return oneOf(t, name, strings.ToLower(t.text(name)), want, words)
	})
}

func oneOf(t *translation, name, text, want string, words map[string]string) []string {
	is, ok := words[text]
	if !ok {
		t.failf(name, "must be %s, not %q", want, t.text(name))
	}
	return []string{is}
}

// statsdProtocol is how metrics are sent. DogStatsD beats StatsD; the reference takes only one of them.
func statsdProtocol(t *translation) []string {
	if t.on("USE_DOG_STATSD") {
		return []string{"dogstatsd"}
	}
	return word("STATSD_PROTOCOL", "tcp or udp", map[string]string{"tcp": "tcp", "udp": "udp"})(t)
}

// address joins a host and a port, if one of them is set.
func (t *translation) address(host, port string) []string {
	if !t.set(host) && !t.set(port) {
		return nil
	}
	h := ""
	if t.set(host) {
		h = strings.TrimSuffix(strings.TrimPrefix(t.text(host), "["), "]")
	}
	return []string{net.JoinHostPort(h, t.text(port))}
}

func grpcAddress(t *translation) []string {
	if path := t.text("GRPC_UDS"); path != "" {
		return []string{"unix:" + path}
	}
	return t.address("GRPC_HOST", "GRPC_PORT")
}

func debugAddress(t *translation) []string {
	if t.set("DEBUG_HOST") {
		return t.address("DEBUG_HOST", "DEBUG_PORT")
	}
	t.note("the debug port listens on 127.0.0.1 only, since it has no guard; DEBUG_HOST=0.0.0.0 opens it to others, " +
		"as the reference does")
	return []string{net.JoinHostPort("127.0.0.1", t.text("DEBUG_PORT"))}
}

func serverCertificate(t *translation) []string {
	names := []string{"GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY", "GRPC_CLIENT_TLS_CACERT", "GRPC_CLIENT_TLS_SAN"}
	if t.on("GRPC_SERVER_USE_TLS") {
		for _, name := range names[:2] {
			if t.text(name) == "" {
				t.failf(name, "must be set, because GRPC_SERVER_USE_TLS is true")
			}
		}
		return []string{t.text("GRPC_SERVER_TLS_CERT")}
	}
	for _, name := range names {
		if t.text(name) != "" {
			t.warn("%s has no effect, because GRPC_SERVER_USE_TLS is not true: the gRPC port speaks plain text and asks for "+
				"no certificates", name)
		}
	}
	return nil
}

func clientCA(t *translation) []string {
	ca, given := t.text("GRPC_CLIENT_TLS_CACERT"), t.text("GRPC_SERVER_TLS_CA_CERT")
	switch {
	case !t.on("GRPC_SERVER_USE_TLS") || ca == "" && given == "":
		return nil
	case ca != "":
		return []string{ca}
	}
	t.note("GRPC_SERVER_TLS_CA_CERT: certificates that clients show are verified, and none is demanded; " +
		"GRPC_CLIENT_TLS_CACERT demands one")
	return []string{given}
}

func clientAuth(t *translation) []string {
	if t.on("GRPC_SERVER_USE_TLS") && t.text("GRPC_CLIENT_TLS_CACERT") == "" && t.text("GRPC_SERVER_TLS_CA_CERT") != "" {
		return []string{"if-given"}
	}
	return nil
}

func clientName(t *translation) []string {
	name := t.text("GRPC_CLIENT_TLS_SAN")
	switch {
	case name == "" || !t.on("GRPC_SERVER_USE_TLS"):
		return nil
	case t.text("GRPC_CLIENT_TLS_CACERT") == "":
		t.failf("GRPC_CLIENT_TLS_SAN",
			"needs GRPC_CLIENT_TLS_CACERT: without it clients show no certificate, and the name guards nothing")
	case strings.ContainsAny(name, "*/"):
		t.failf("GRPC_CLIENT_TLS_SAN", "%q is not a DNS name; patterns and SPIFFE IDs go into HEADGATE_GRPC_CLIENT_SAN", name)
	}
	return []string{name}
}

// rules are the files that the reference reads, by the names of their directory.
func rules(t *translation) []string {
	switch kind := t.text("CONFIG_TYPE"); kind {
	case "FILE":
	case xdsType:
		return nil
	default:
		t.failf("CONFIG_TYPE", "must be FILE or %s, not %q", xdsType, kind)
		return nil
	}
	app := t.text("RUNTIME_APPDIRECTORY")
	if app == "" {
		t.failf("RUNTIME_APPDIRECTORY", "must not be empty")
	}
	above := filepath.Join(t.text("RUNTIME_ROOT"), t.text("RUNTIME_SUBDIRECTORY"))
	dir := filepath.Join(above, app)
	var list []string
	if t.on("RUNTIME_WATCH_ROOT") {
		list = filesBeside(above, app)
	}
	if _, err := os.Stat(dir); err == nil {
		return append([]string{dir}, list...)
	}
	if len(list) == 0 {
		t.failf("RUNTIME_ROOT",
			"directory %s does not exist (RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY name it)", dir)
	}
	return list
}

// filesBeside returns what is in a directory under names that begin with app and a dot: the
// reference takes them for rules while it watches the root.
func filesBeside(above, app string) (list []string) {
	entries, _ := os.ReadDir(above) // an error shows when the rules are read
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), app+".") {
			list = append(list, filepath.Join(above, e.Name()))
		}
	}
	return list
}

func metrics(t *translation) []string {
	if !t.on("USE_PROMETHEUS") {
		return nil
	}
	if file := t.text("PROMETHEUS_MAPPER_YAML"); file != "" {
		if _, err := os.Stat(file); err == nil {
			t.warn("PROMETHEUS_MAPPER_YAML: %s is not read; metrics have the names of the reference's own mapping", file)
		}
	}
	return []string{t.text("PROMETHEUS_ADDR")}
}
