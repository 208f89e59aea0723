package compat

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func nothingGiven(string) bool { return false }

// with returns an environment that starts, with some variables more.
func with(t *testing.T, more ...string) []string {
	dir := t.TempDir()
	mkdir(t, filepath.Join(dir, "config"))
	return append([]string{"RUNTIME_ROOT=" + dir, "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=r:1", "USE_STATSD=false"}, more...)
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

func flags(r *Result) map[string]string {
	m := map[string]string{}
	for _, s := range r.Settings {
		m[s.Name] = strings.Join(s.Values, "|")
	}
	return m
}

// unset stands for a setting that keeps its default.
const unset = "(unset)"

func TestEachVariableBecomesItsSetting(t *testing.T) {
	const tls = "GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=c GRPC_SERVER_TLS_KEY=k "
	const xds = "CONFIG_TYPE=GRPC_XDS_SOTW "
	for _, c := range []struct{ env, flag, want string }{
		{"", "http", unset},
		{"PORT=1", "http", ":1"},
		{"HOST=::", "http", "[::]:8080"},
		{"HOST=[::1] PORT=2", "http", "[::1]:2"},
		{"HOST=0.0.0.0", "http", "0.0.0.0:8080"},
		{"", "grpc", unset},
		{"GRPC_PORT=1", "grpc", ":1"},
		{"GRPC_HOST=:: GRPC_PORT=2", "grpc", "[::]:2"},
		{"GRPC_UDS=/s GRPC_PORT=2", "grpc", "unix:/s"},
		{"GRPC_PORT=tcp://10.0.0.1:8081", "grpc", unset},
		{"", "debug", "127.0.0.1:6070"},
		{"DEBUG_PORT=1", "debug", "127.0.0.1:1"},
		{"DEBUG_HOST=0.0.0.0 DEBUG_PORT=1", "debug", "0.0.0.0:1"},
		{"", "services", ""},
		{"GRPC_MAX_CONNECTION_AGE=5m", "grpc-max-connection-age", "5m"},
		{"GRPC_MAX_CONNECTION_AGE_GRACE=6m", "grpc-max-connection-age-grace", "6m"},

		{"GRPC_SERVER_TLS_CERT=c GRPC_SERVER_TLS_KEY=k", "grpc-tls-cert", unset},
		{tls, "grpc-tls-cert", "c"},
		{tls, "grpc-tls-key", "k"},
		{tls, "grpc-client-ca", unset},
		{tls + "GRPC_CLIENT_TLS_CACERT=a", "grpc-client-ca", "a"},
		{tls + "GRPC_CLIENT_TLS_CACERT=a", "grpc-client-auth", unset},
		{tls + "GRPC_SERVER_TLS_CA_CERT=b", "grpc-client-ca", "b"},
		{tls + "GRPC_SERVER_TLS_CA_CERT=b", "grpc-client-auth", "if-given"},
		{tls + "GRPC_SERVER_TLS_CA_CERT=b GRPC_CLIENT_TLS_CACERT=a", "grpc-client-ca", "a"},
		{tls + "GRPC_SERVER_TLS_CA_CERT=b GRPC_CLIENT_TLS_CACERT=a", "grpc-client-auth", unset},
		{tls + "GRPC_CLIENT_TLS_CACERT=a GRPC_CLIENT_TLS_SAN=x.example.com", "grpc-client-san", "x.example.com"},

		{"", "log-level", unset},
		{"LOG_LEVEL=TRACE", "log-level", "debug"},
		{"LOG_LEVEL=warning", "log-level", "warn"},
		{"LOG_LEVEL=fatal", "log-level", "error"},
		{"LOG_LEVEL=panic", "log-level", "error"},
		{"LOG_FORMAT=JSON", "log-format", "logrus"},
		{"LOG_FORMAT=text", "log-format", "text"},

		{"", "rules-files", "dot"},
		{"RUNTIME_IGNOREDOTFILES=true", "rules-files", "all"},
		{"", "rules-empty", "true"},
		{"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true", "rules-empty", "false"},
		{"MERGE_DOMAIN_CONFIG=true", "merge-domains", "true"},

		{"", "xds", unset},
		{"CONFIG_GRPC_XDS_SERVER_URL=h:1", "xds", unset},
		{xds, "rules", unset},
		{xds, "rules-files", unset},
		{xds, "rules-empty", unset},
		{xds, "xds", "localhost:18000"},
		{xds + "CONFIG_GRPC_XDS_SERVER_URL=h:1", "xds", "h:1"},
		{xds, "xds-node-id", "default"},
		{xds + "CONFIG_GRPC_XDS_NODE_ID=n", "xds-node-id", "n"},
		{xds + "CONFIG_GRPC_XDS_NODE_METADATA=a=1,b=2", "xds-node-metadata", "a=1|b=2"},
		{xds + "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=a:1,b:2", "xds-header", "a:1|b:2"},
		{xds, "xds-tls", unset},
		{xds + "CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "xds-tls", "true"},
		{xds + "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=c", "xds-tls-cert", unset},
		{xds + "CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_CLIENT_TLS_CERT=c", "xds-tls-cert", "c"},
		{xds + "CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_CLIENT_TLS_KEY=k", "xds-tls-key", "k"},
		{xds + "CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_SERVER_TLS_CACERT=a", "xds-tls-ca", "a"},
		{xds + "CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_SERVER_TLS_SAN=s", "xds-tls-server-name", "s"},
		{xds + "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=1000", "xds-max-message", unset},
		{xds + "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=100000000", "xds-max-message", "100000000"},
		{xds, "xds-wait", unset},
		{xds, "xds-health", "rules"},
		{xds + "FORCE_START_WITHOUT_INITIAL_CONFIG=true", "xds-wait", "0s"},
		{xds + "FORCE_START_WITHOUT_INITIAL_CONFIG=true", "xds-health", unset},
		{xds + "FORCE_START_WITHOUT_INITIAL_CONFIG=true HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true", "xds-health", "rules"},

		{"", "overflow", "saturate"},
		{"REDIS_PERSECOND_URL=p:1 REDIS_PERSECOND_SOCKET_TYPE=tcp", "backend-per-second", unset},
		{"REDIS_PERSECOND=true BACKEND_TYPE=memory", "backend-per-second", unset},
		{"REDIS_PERSECOND=true REDIS_PERSECOND_URL=p:1 REDIS_PERSECOND_SOCKET_TYPE=tcp REDIS_PERSECOND_AUTH=u:p " +
			"REDIS_AUTH=other REDIS_PERSECOND_POOL_SIZE=30 REDIS_POOL_SIZE=40 REDIS_PERSECOND_TIMEOUT=1s CACHE_KEY_PREFIX=a:",
			"backend-per-second", "redis://u:p@p:1?dial_timeout=1s&pool_size=30&prefix=a%3Aheadgate%3A&timeout=1s"},
		{"REDIS_PERSECOND=true REDIS_PERSECOND_URL=/run/s REDIS_LAYOUT=envoy", "backend-per-second",
			"redis+unix:///run/s?layout=envoy"},
		{"REDIS_PERSECOND=true REDIS_PERSECOND_URL=m,s1:1 REDIS_PERSECOND_TYPE=sentinel REDIS_PERSECOND_TLS=true " +
			"REDIS_PERSECOND_SENTINEL_AUTH=sp REDIS_PERSECOND_AUTH_FILE=/f REDIS_TLS_CACERT=/a", "backend-per-second",
			"rediss+sentinel://s1:1/m?ca=%2Fa&password_file=%2Ff&sentinel_password=sp"},
		{"SHADOW_MODE=true", "shadow-mode", "true"},
		{"QUOTA_MODE=1", "quota-mode", "1"},
		{"USE_CALENDAR_MONTH_RATE_LIMIT=true", "calendar-months", "true"},
		{"RESPONSE_DYNAMIC_METADATA=true", "dynamic-metadata", "true"},
		{"LIMIT_RESPONSE_HEADERS_ENABLED=true", "response-headers", "true"},
		{"LIMIT_LIMIT_HEADER=L", "limit-header", "L"},
		{"LIMIT_REMAINING_HEADER=R", "remaining-header", "R"},
		{"LIMIT_RESET_HEADER=S", "reset-header", "S"},

		{"PROMETHEUS_ADDR=:1", "metrics", unset},
		{"USE_PROMETHEUS=true", "metrics", ":9090"},
		{"USE_PROMETHEUS=true PROMETHEUS_ADDR=:19001", "metrics", ":19001"},
		{"USE_PROMETHEUS=true PROMETHEUS_PATH=/m", "metrics-path", "/m"},
		{"", "reference-metrics", "true"},
		{"NEAR_LIMIT_RATIO=0.5", "near-limit-ratio", "0.5"},
		{"USE_STATSD= STATSD_HOST=h", "statsd", "h:8125"},
		{"USE_STATSD= USE_PROMETHEUS=true", "statsd", unset},
		{"STATSD_HOST=h", "statsd", unset},
		{"USE_STATSD=true", "statsd", "localhost:8125"},
		{"USE_STATSD=true STATSD_HOST=:: STATSD_PORT=1", "statsd", "[::]:1"},
		{"USE_STATSD=true DISABLE_STATS=true", "statsd", unset},
		{"USE_STATSD=true", "statsd-protocol", "tcp"},
		{"USE_DOG_STATSD=true STATSD_HOST=h", "statsd", "h:8125"},
		{"USE_DOG_STATSD=true EXTRA_TAGS=a:b", "statsd-tag", "a:b"},
		{"USE_DOG_STATSD=true", "statsd-protocol", "dogstatsd"},
		{"USE_STATSD=true STATSD_PROTOCOL=udp", "statsd-protocol", "udp"},
		{"STATSD_PROTOCOL=udp", "statsd-protocol", unset},
		{"USE_STATSD=true STATS_FLUSH_INTERVAL=1s", "statsd-interval", "1s"},
		{"USE_STATSD=true EXTRA_TAGS=a:b,c:d", "statsd-tag", "a:b|c:d"},
	} {
		res, err := Translate(with(t, strings.Fields(c.env)...), nothingGiven)
		if err != nil {
			t.Errorf("%s: %v", c.env, err)
			continue
		}
		got, ok := flags(res)[c.flag]
		if !ok {
			got = unset
		}
		if got != c.want {
			t.Errorf("%q: --%s is %q, want %q", c.env, c.flag, got, c.want)
		}
	}
}

func TestRedisBecomesOneURL(t *testing.T) {
	for _, c := range []struct{ env, want string }{
		{"REDIS_URL=h:6379", "redis://h:6379"},
		{"REDIS_URL=redis://h:1/3", "redis://h:1/3"},
		{"REDIS_URL=redis://h:1?db=3&password=p%20w", "redis://:p%20w@h:1/3"},
		{"REDIS_URL=redis://u:p%40w@h:1", "redis://u:p%40w@h:1"},
		{"REDIS_URL=redis://u:p@h:1 REDIS_AUTH=a:b:c/?@", "redis://a:b%3Ac%2F%3F%40@h:1"},
		{"REDIS_URL=h:1 REDIS_AUTH=only", "redis://:only@h:1"},
		{"REDIS_URL=h:1 REDIS_AUTH_FILE=/f", "redis://h:1?password_file=%2Ff"},
		{"REDIS_URL=/run/r.sock REDIS_SOCKET_TYPE=unix REDIS_AUTH=p", "redis+unix://:p@/run/r.sock"},
		{"REDIS_URL=a:1,b:2 REDIS_TYPE=cluster", "redis+cluster://a:1,b:2"},
		{"REDIS_URL=a:1,b:2 REDIS_TYPE=cluster REDIS_SOCKET_TYPE=", "redis+cluster://a:1,b:2"},
		{"REDIS_URL=/run/a?b%.sock REDIS_SOCKET_TYPE=unix", "redis+unix:///run/a%3Fb%25.sock"},
		{"REDIS_URL=m,s1:1 REDIS_TYPE=sentinel REDIS_SOCKET_TYPE=unix", "redis+sentinel://s1:1/m"},
		{"REDIS_URL=a:1,b:2 REDIS_TYPE=CLUSTER REDIS_TLS=true REDIS_AUTH=p", "rediss+cluster://:p@a:1,b:2"},
		{"REDIS_URL=my/master,s1:1,s2:2 REDIS_TYPE=Sentinel REDIS_AUTH=u:p", "redis+sentinel://u:p@s1:1,s2:2/my%2Fmaster"},
		{"REDIS_URL=m,s1:1 REDIS_TYPE=sentinel REDIS_SENTINEL_AUTH=su:sp REDIS_AUTH=p",
			"redis+sentinel://:p@s1:1/m?sentinel_password=sp&sentinel_username=su"},
		{"REDIS_URL=m,redis://:sp@s1:1 REDIS_TYPE=sentinel", "redis+sentinel://s1:1/m?sentinel_password=sp"},
		{"REDIS_URL=h:1 REDIS_TLS=true", "rediss://h:1"},
		{"REDIS_URL=rediss://h:1", "rediss://h:1"},
		{"REDIS_URL=h:1 REDIS_TLS=true REDIS_TLS_CACERT=/a REDIS_TLS_CLIENT_CERT=/c REDIS_TLS_CLIENT_KEY=/k",
			"rediss://h:1?ca=%2Fa&cert=%2Fc&key=%2Fk"},
		{"REDIS_URL=h:1 REDIS_TLS=true REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true",
			"rediss://h:1?skip_hostname_verification=true"},
		{"REDIS_URL=h:1 REDIS_TLS_CACERT=/a", "redis://h:1"},
		{"REDIS_URL=h:1 REDIS_POOL_SIZE=10", "redis://h:1"},
		{"REDIS_URL=h:1 REDIS_POOL_SIZE=30", "redis://h:1?pool_size=30"},
		{"REDIS_URL=h:1 REDIS_TIMEOUT=2s", "redis://h:1?dial_timeout=2s&timeout=2s"},
		{"REDIS_URL=h:1 REDIS_TIMEOUT=10m", "redis://h:1?dial_timeout=1m0s&timeout=1m0s"},
		{"REDIS_URL=h:1 CACHE_KEY_PREFIX=a&b:", "redis://h:1?prefix=a%26b%3Aheadgate%3A"},
		{"REDIS_URL=h:1 EXPIRATION_JITTER_MAX_SECONDS=5", "redis://h:1"},
		{"REDIS_URL=h:1 REDIS_LAYOUT=headgate", "redis://h:1"},
		{"REDIS_URL=h:1 REDIS_LAYOUT=envoy", "redis://h:1?layout=envoy"},
		{"REDIS_URL=h:1 REDIS_LAYOUT=Envoy CACHE_KEY_PREFIX=a: EXPIRATION_JITTER_MAX_SECONDS=0",
			"redis://h:1?cache_key_prefix=a%3A&expiration_jitter=0&layout=envoy&prefix=a%3Aheadgate%3A"},
		{"REDIS_URL=a:1,b:2 REDIS_TYPE=cluster REDIS_LAYOUT=envoy REDIS_PERSECOND=false",
			"redis+cluster://a:1,b:2?layout=envoy"},
		{"BACKEND_TYPE=memory", "memory://"},
	} {
		res, err := Translate(with(t, strings.Fields(c.env)...), nothingGiven)
		if err != nil {
			t.Errorf("%s: %v", c.env, err)
		} else if got := flags(res)["backend"]; got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.env, got, c.want)
		}
	}
}

// What headgate cannot do, or what would be weaker than it says, ends the start.
func TestWhatCannotBeMappedIsAnError(t *testing.T) {
	for _, c := range []struct{ env, want string }{
		{"REDIS_URL=secret@h:1", "REDIS_URL: element 1 of 1 must be host:port or"},
		{"REDIS_URL=http://user:secret@h:1", "REDIS_URL: element 1 of 1 must be host:port or"},
		{"REDIS_URL=a:1,b:1", "REDIS_URL: element 1 of 1 must be host:port or"},
		{"REDIS_SOCKET_TYPE=unix", "REDIS_SOCKET_TYPE: is unix, and REDIS_URL is not the path of a socket"},
		{"REDIS_SOCKET_TYPE=", "REDIS_SOCKET_TYPE: is unix, and REDIS_URL is not the path of a socket"},
		{"REDIS_SOCKET_TYPE=udp", `REDIS_SOCKET_TYPE: must be tcp or unix, not "udp"`},
		{"REDIS_TYPE=ring", `REDIS_TYPE: must be SINGLE, SENTINEL or CLUSTER, not "ring"`},
		{"REDIS_TYPE=sentinel", "REDIS_URL: want the master's name"},
		{"REDIS_TYPE=cluster REDIS_URL=redis://:secret@a:1,b:1", "REDIS_URL: element 2 has another login"},
		{"REDIS_AUTH=secret REDIS_AUTH_FILE=/f", "REDIS_AUTH_FILE: and REDIS_AUTH exclude"},
		{"REDIS_TLS=true REDIS_TLS_CLIENT_CERT=c", "REDIS_TLS_CLIENT_CERT: and REDIS_TLS_CLIENT_KEY go together"},
		{"REDIS_AWS_IAM_AUTH=true", "REDIS_AWS_IAM_AUTH: is not supported"},
		{"REDIS_LAYOUT=list", `REDIS_LAYOUT: want headgate or envoy, not "list"`},
		{"REDIS_PERSECOND=true", "REDIS_PERSECOND_URL: must be set, because REDIS_PERSECOND is true"},
		{"REDIS_PERSECOND=true REDIS_PERSECOND_URL=secret@h:1 REDIS_PERSECOND_SOCKET_TYPE=tcp",
			"REDIS_PERSECOND_URL: element 1 of 1 must be host:port or"},
		{"REDIS_PERSECOND=true REDIS_PERSECOND_URL=h:1", "REDIS_PERSECOND_SOCKET_TYPE: is unix, and REDIS_PERSECOND_URL is " +
			"not the path of a socket; set REDIS_PERSECOND_SOCKET_TYPE=tcp"},
		{"REDIS_PERSECOND=true REDIS_PERSECOND_URL=h:1 REDIS_PERSECOND_TYPE=ring", "REDIS_PERSECOND_TYPE: must be SINGLE"},
		{"REDIS_LAYOUT=envoy EXPIRATION_JITTER_MAX_SECONDS=long", "EXPIRATION_JITTER_MAX_SECONDS: "},
		{"BACKEND_TYPE=memcache", "BACKEND_TYPE: memcache is not supported"},
		{"BACKEND_TYPE=disk", `BACKEND_TYPE: must be redis or memory, not "disk"`},
		{"CONFIG_TYPE=HTTP", `CONFIG_TYPE: must be FILE or GRPC_XDS_SOTW, not "HTTP"`},
		{"GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_KEY=k", "GRPC_SERVER_TLS_CERT: must be set"},
		{"GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=c", "GRPC_SERVER_TLS_KEY: must be set"},
		{"GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=c GRPC_SERVER_TLS_KEY=k GRPC_CLIENT_TLS_SAN=a",
			"GRPC_CLIENT_TLS_SAN: needs GRPC_CLIENT_TLS_CACERT"},
		{"GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=c GRPC_SERVER_TLS_KEY=k GRPC_CLIENT_TLS_CACERT=a " +
			"GRPC_CLIENT_TLS_SAN=*.b", `"*.b" is not a DNS name`},
		{"LOG_LEVEL=loud", `LOG_LEVEL: must be trace, debug, info, warn, error, fatal or panic, not "loud"`},
		{"LOG_FORMAT=xml", `LOG_FORMAT: must be text or json, not "xml"`},
		{"SHADOW_MODE=perhaps", `SHADOW_MODE: must be true or false, not "perhaps"`},
		{"PORT=http", `PORT: "http" is not a port`},
		{"USE_STATSD=true STATSD_PROTOCOL=unix", `STATSD_PROTOCOL: must be tcp or udp, not "unix"`},
		{"USE_STATSD=true EXTRA_TAGS=a", `EXTRA_TAGS: want key:value, separated by commas, not "a"`},
		{"NEAR_LIMIT_RATIO=1.5", "NEAR_LIMIT_RATIO: want a number from 0 to 1"},
		{"NEAR_LIMIT_RATIO=NaN", "NEAR_LIMIT_RATIO: want a number from 0 to 1"},
		{"GRPC_MAX_CONNECTION_AGE=-1s", "GRPC_MAX_CONNECTION_AGE: "},
		{"TRACING_ENABLED=true TRACING_EXPORTER_PROTOCOL=HTTP",
			`TRACING_EXPORTER_PROTOCOL: must be http or grpc, not "HTTP"`},
		{"TRACING_SAMPLING_RATE=2", "TRACING_SAMPLING_RATE: want a number from 0 to 1"},
		{"RUNTIME_ROOT=/does/not/exist", "RUNTIME_ROOT: directory /does/not/exist/config does not exist"},
	} {
		res, err := Translate(with(t, strings.Fields(c.env)...), nothingGiven)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.env, err, c.want)
			continue
		}
		if strings.Contains(err.Error()+strings.Join(res.Warnings, ""), "secret") {
			t.Errorf("%s: the error shows a secret: %v", c.env, err)
		}
	}
	if _, err := Translate(nil, nothingGiven); err == nil || !strings.Contains(err.Error(), "REDIS_URL: must be set") {
		t.Errorf("an empty environment: %v", err)
	}
}

// TestDefaultSockets: the reference asks a twemproxy at a socket unless it is told otherwise. Where there is one, it is
// what is meant.
func TestDefaultSockets(t *testing.T) {
	const first, second = "/var/run/nutcracker/ratelimit.sock", "/var/run/nutcracker/ratelimitpersecond.sock"
	there := map[string]bool{}
	was := isSocket
	isSocket = func(path string) bool { return there[path] }
	t.Cleanup(func() { isSocket = was })
	root := with(t)[:1]
	for _, c := range []struct {
		env, sockets, backend, perSecond string
	}{
		{"", first, "redis+unix://" + first, ""},
		{"REDIS_AUTH=p", first, "redis+unix://:p@" + first, ""},
		{"REDIS_PERSECOND=true", first + " " + second, "redis+unix://" + first, "redis+unix://" + second},
		{"REDIS_PERSECOND=true", first, "", ""},
		{"REDIS_SOCKET_TYPE=tcp", first, "", ""},
		{"", second, "", ""},
	} {
		clear(there)
		for _, socket := range strings.Fields(c.sockets) {
			there[socket] = true
		}
		res, err := Translate(append(root, strings.Fields(c.env)...), nothingGiven)
		if (err == nil) != (c.backend != "") || err != nil && !strings.Contains(err.Error(), "must be set, because") {
			t.Errorf("%s, with %q: %v", c.env, c.sockets, err)
		}
		if err == nil && (flags(res)["backend"] != c.backend || flags(res)["backend-per-second"] != c.perSecond) {
			t.Errorf("%s, with %q: %v", c.env, c.sockets, flags(res))
		}
	}
}

func TestWhatHasNoEffectIsToldOf(t *testing.T) {
	for _, c := range []struct{ env, warning, note, ignored string }{
		{"USE_STATSD=true EXTRA_TAGS=a:b", "", "", ""},
		{"USE_STATSD=false STATSD_HOST=h", "", "", ""},
		{"USE_STATSD= STATSD_HOST=h", "", "", ""},
		{"USE_STATSD= USE_PROMETHEUS=true", "", "", ""},
		{"USE_STATSD= DISABLE_STATS=true", "", "", ""},
		{"USE_STATSD=true STATSD_PORT=tcp://10.0.0.1:8125", "STATSD_PORT is ignored: Kubernetes set it", "", ""},
		{"USE_DOG_STATSD=true", "", "", ""},
		{"USE_DOG_STATSD=true USE_DOG_STATSD_MOGRIFIERS=A", "USE_DOG_STATSD_MOGRIFIERS: metrics keep the reference's names",
			"", ""},
		{"REDIS_PERSECOND=true REDIS_PERSECOND_URL=p:1 REDIS_PERSECOND_SOCKET_TYPE=tcp REDIS_TLS_CACERT=/a " +
			"REDIS_PERSECOND_TLS=true", "", "", ""},
		{"REDIS_PERSECOND=true REDIS_PERSECOND_URL=p:1 REDIS_PERSECOND_SOCKET_TYPE=tcp REDIS_PERSECOND_SENTINEL_AUTH=secret",
			"REDIS_PERSECOND_SENTINEL_AUTH has no effect, because REDIS_PERSECOND_TYPE is not SENTINEL", "", ""},
		{"REDIS_PERSECOND=false", "", "", ""},
		{"TRACING_ENABLED=true", "", "or by B3 headers", ""},
		{"TRACING_ENABLED=true TRACING_EXPORTER_PROTOCOL=udp OTEL_TRACES_EXPORTER=none", "",
			"have no effect, because OTEL_TRACES_EXPORTER is set", ""},
		{"TRACING_ENABLED=false TRACING_EXPORTER_PROTOCOL=udp", "", "", ""},
		{"EXTRA_TAGS=a:b", "EXTRA_TAGS: labels are not added", "", ""},
		{"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS=true", "response times are in seconds", "", ""},
		{"USE_PROMETHEUS=true PROMETHEUS_MAPPER_YAML=/none", "", "", ""},
		{"USE_PROMETHEUS=true PROMETHEUS_MAPPER_YAML=compat_test.go",
			"PROMETHEUS_MAPPER_YAML: compat_test.go is not read", "", ""},
		{"GRPC_SERVER_TLS_CERT=c", "GRPC_SERVER_TLS_CERT has no effect, because GRPC_SERVER_USE_TLS is not true", "", ""},
		{"GRPC_CLIENT_TLS_CACERT=c", "GRPC_CLIENT_TLS_CACERT has no effect, because GRPC_SERVER_USE_TLS is not true", "", ""},
		{"REDIS_TLS_CACERT=c", "REDIS_TLS_CACERT has no effect, because REDIS_TLS is not true", "", ""},
		{"REDIS_SENTINEL_AUTH=p", "REDIS_SENTINEL_AUTH has no effect", "", ""},
		{"CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_CLIENT_TLS_CERT=c",
			"CONFIG_GRPC_XDS_CLIENT_TLS_CERT has no effect", "", ""},
		{"DEBUG_PORT=tcp://10.0.0.1:6070", "DEBUG_PORT is ignored: Kubernetes set it", "", ""},
		{"GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=c GRPC_SERVER_TLS_KEY=k GRPC_SERVER_TLS_CA_CERT=b", "",
			"none is demanded", ""},
		{"REDIS_PIPELINE_LIMIT=1 MEMCACHE_SRV=x", "", "the debug port listens on 127.0.0.1",
			"MEMCACHE_SRV REDIS_PIPELINE_LIMIT"},
		{"UNKNOWN_NAME=1", "", "", ""},
		{"SHADOW_MDE=true", "environment variable SHADOW_MDE has no effect; did you mean SHADOW_MODE?", "", ""},
		{"REDIS_AUT=secret redis_tls=true", "variable REDIS_AUT has no effect; did you mean REDIS_AUTH?\n" +
			"environment variable redis_tls has no effect; did you mean REDIS_TLS?", "", ""},
		{"REDIS_PIPELINE_LIMITS=x MEMCACHE_SRVS=x", "", "", ""}, // what they are like has no effect either
		{"REDIS_PORT=tcp://10.0.0.1:6379 REDIS_PORT_6379_TCP_ADDR=10.0.0.1 REDIS_SERVICE_HOST=10.0.0.1 REDIS_HOST=r " +
			"HOSTS=h POST=1 TLS_CERT=c", "", "", ""},
	} {
		res, err := Translate(with(t, strings.Fields(c.env)...), nothingGiven)
		if err != nil {
			t.Errorf("%s: %v", c.env, err)
			continue
		}
		if got := strings.Join(res.Warnings, "\n"); !strings.Contains(got, c.warning) || c.warning == "" && got != "" {
			t.Errorf("%s: warnings %q, want %q", c.env, got, c.warning)
		}
		if got := strings.Join(res.Notes, "\n"); !strings.Contains(got, c.note) {
			t.Errorf("%s: notes %q, want %q", c.env, got, c.note)
		}
		if got := strings.Join(res.Ignored, " "); got != c.ignored {
			t.Errorf("%s: ignored %q, want %q", c.env, got, c.ignored)
		}
	}
}

// A setting that somebody gives by headgate's own name beats the reference's variables, and
// what is wrong with them does not matter.
func TestGivenSettingsAreLeftAlone(t *testing.T) {
	res, err := Translate([]string{"PORT=1"}, func(flag string) bool {
		return flag == "backend" || flag == "rules" ||
			flag == "http"
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range res.Settings {
		if s.Name == "backend" || s.Name == "rules" || s.Name == "http" {
			t.Errorf("--%s is set", s.Name)
		}
	}
}

func TestRulesAreWhereTheReferenceReadsThem(t *testing.T) {
	root := t.TempDir()
	mkdir(t, filepath.Join(root, "sub", "config"))
	mkdir(t, filepath.Join(root, "sub", "config.d"))
	if err := os.WriteFile(filepath.Join(root, "sub", "config.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mkdir(t, filepath.Join(root, "sub", "other"))
	for _, c := range []struct{ env, want string }{
		{"RUNTIME_SUBDIRECTORY=sub", "sub/config sub/config.d sub/config.yaml"},
		{"RUNTIME_SUBDIRECTORY=sub RUNTIME_WATCH_ROOT=false", "sub/config"},
		{"RUNTIME_APPDIRECTORY=sub", "sub"},
		{"RUNTIME_SUBDIRECTORY=sub RUNTIME_APPDIRECTORY=other", "sub/other"},
	} {
		env := append([]string{"RUNTIME_ROOT=" + root, "BACKEND_TYPE=memory"}, strings.Fields(c.env)...)
		res, err := Translate(env, nothingGiven)
		if err != nil {
			t.Errorf("%s: %v", c.env, err)
			continue
		}
		if got := strings.ReplaceAll(flags(res)["rules"], root+"/", ""); got != strings.ReplaceAll(c.want, " ", "|") {
			t.Errorf("%s: %s, want %s", c.env, got, c.want)
		}
	}
}

// The tables fit together: a variable that is mapped makes a setting, and no other does.
func TestTablesFitTogether(t *testing.T) {
	makes := map[string]bool{}
	for i := range exports {
		for _, name := range exports[i].from {
			makes[name] = true
			if at, ok := byName[name]; !ok || Variables[at].Effect != Mapped {
				t.Errorf("%s is made of %s, which the table does not say", exports[i].name, name)
			}
		}
	}
	for i := range mappings {
		for _, name := range mappings[i].from {
			makes[name] = true
			at, ok := byName[name]
			switch {
			case !ok:
				t.Errorf("--%s is made of %s, which is not in the table", mappings[i].name, name)
			case Variables[at].Effect != Mapped:
				t.Errorf("--%s is made of %s, which the table says has the effect %d", mappings[i].name, name,
					Variables[at].Effect)
			}
		}
	}
	for i := range Variables {
		v := &Variables[i]
		if v.Effect == Mapped && !makes[v.Name] {
			t.Errorf("%s makes no setting", v.Name)
		}
		if v.Effect != Mapped && v.Note == "" {
			t.Errorf("%s: the table does not say why it has no effect", v.Name)
		}
		if v.Default != "" {
			if err := v.kind.check(v.Default); err != nil {
				t.Errorf("%s: its default: %v", v.Name, err)
			}
		}
	}
	if len(byName) != len(Variables) {
		t.Error("a variable has two rows")
	}
	if !slices.ContainsFunc(mappings, func(m mapping) bool { return m.name == "services" && m.from == nil }) {
		t.Error("the port of other services, which the reference does not have, is open")
	}
}

// What the reference traces is what the variables of OpenTelemetry say then, and what they say
// otherwise stays.
func TestTracesBecomeVariablesOfOpenTelemetry(t *testing.T) {
	const byDefault = "OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf " +
		"OTEL_SERVICE_NAME=RateLimit " +
		"OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG=1"
	for _, c := range []struct{ env, want string }{
		{"", ""},
		{"TRACING_SERVICE_NAME=x TRACING_SAMPLING_RATE=0.5", ""},
		{"TRACING_ENABLED=false TRACING_SERVICE_NAME=x", ""},
		{"TRACING_ENABLED=true", byDefault},
		{"TRACING_ENABLED=1 TRACING_SERVICE_NAME= TRACING_EXPORTER_PROTOCOL= TRACING_SAMPLING_RATE=", byDefault},
		{"TRACING_ENABLED=true OTEL_SERVICE_NAME=other", byDefault},
		{"TRACING_ENABLED=true OTEL_TRACES_EXPORTER=", byDefault},
		{"TRACING_ENABLED=true OTEL_TRACES_EXPORTER=none", ""},
		{"TRACING_ENABLED=true OTEL_TRACES_EXPORTER=otlp TRACING_SERVICE_NAME=x", ""},
		{
			"TRACING_ENABLED=true TRACING_SERVICE_NAME=s TRACING_SERVICE_NAMESPACE=a,b=c%d TRACING_SERVICE_INSTANCE_ID=i " +
				"TRACING_EXPORTER_PROTOCOL=grpc TRACING_SAMPLING_RATE=0.25 OTEL_RESOURCE_ATTRIBUTES=team=pay",
			"OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc OTEL_SERVICE_NAME=s " +
				"OTEL_RESOURCE_ATTRIBUTES=team=pay,service.namespace=a%2Cb=c%25d,service.instance.id=i " +
				"OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG=0.25",
		},
	} {
		res, err := Translate(with(t, strings.Fields(c.env)...), nothingGiven)
		if err != nil {
			t.Errorf("%s: %v", c.env, err)
			continue
		}
		var got []string
		for _, v := range res.Environment {
			got = append(got, v.Name+"="+v.Values[0])
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.env, strings.Join(got, " "), c.want)
		}
	}
}
