package compat

// An Effect is what headgate does with a variable of the reference that is set.
type Effect uint8

// The effects.
const (
	Mapped  Effect = iota // settings of headgate are made of it
	Warned                // it has no effect, and the log says once what headgate does instead
	Ignored               // it has no effect, and needs none
	Refused               // true is an error
)

// A Known is a row of the table of variables: all there is to know of one.
type Known struct {
	Name    string
	Default string // of the reference
	kind    kind
	Effect  Effect
	Note    string // what headgate does, for the documentation and the log
}

const (
	builtIn    = "calls to Redis are batched, bounded and guarded by a breaker without it"
	notXDS     = "headgate tries again after 0.5 to 30 seconds, by chance"
	noMemcache = "see `BACKEND_TYPE`"
	perSecond  = "as `REDIS_SOCKET_TYPE`, and so on"
)

// Variables whose names are long.
const (
	stopIncrement = "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"
	localCache    = "LOCAL_CACHE_SIZE_IN_BYTES"
)

// Variables are all that the reference reads, in the order of the documentation.
var Variables = []Known{
	{"HOST", "0.0.0.0", anyText, Mapped, ""},
	{"PORT", "8080", port, Mapped, ""},
	{"GRPC_HOST", "0.0.0.0", anyText, Mapped, ""},
	{"GRPC_PORT", "8081", port, Mapped, ""},
	{"GRPC_UDS", "", text, Mapped, "beats `GRPC_HOST` and `GRPC_PORT`"},
	{"DEBUG_HOST", "0.0.0.0", anyText, Mapped, "not set: headgate listens on 127.0.0.1 only"},
	{"DEBUG_PORT", "6070", port, Mapped, ""},
	{"GRPC_MAX_CONNECTION_AGE", "24h", duration, Mapped, ""},
	{"GRPC_MAX_CONNECTION_AGE_GRACE", "1h", duration, Mapped, ""},
	{"GRPC_MAX_CONCURRENT_STREAMS", "0", number, Warned, "a connection may have 1,024 calls at the same time"},
	{"MAX_CONCURRENT_REQUESTS", "0", number, Warned, "requests are bounded by the memory that they take, and " +
		"HEADGATE_ON_OVERLOAD says what those above the capacity of Redis get"},
	{"REQUEST_TIMEOUT", "0", duration, Warned, "HEADGATE_BACKEND_TIMEOUT bounds how long a request waits for Redis"},

	{"GRPC_SERVER_USE_TLS", "false", boolean, Mapped,
		"true without both files is an error; files without it: no TLS, and a warning"},
	{"GRPC_SERVER_TLS_CERT", "", text, Mapped, ""},
	{"GRPC_SERVER_TLS_KEY", "", text, Mapped, "may be in another directory than the certificate"},
	{"GRPC_CLIENT_TLS_CACERT", "", text, Mapped,
		"clients must have a certificate of it; authorities of the system do not count"},
	{"GRPC_CLIENT_TLS_SAN", "", text, Mapped,
		"the client's certificate must have this DNS name or IP address; without `GRPC_CLIENT_TLS_CACERT` an error"},
	{"GRPC_SERVER_TLS_CA_CERT", "", text, Mapped,
		"the reference does not read it, but Envoy Gateway sets it: certificates that clients show must be of it, " +
			"and a client may show none"},

	{"LOG_LEVEL", "WARN", text, Mapped, "not set: info; `trace` is debug, `fatal` and `panic` are error"},
	{"LOG_FORMAT", "text", text, Mapped,
		"`json`: lines have `@timestamp`, `@message` and `level` with the reference's names and levels; texts and the " +
			"other fields are headgate's"},

	{"CONFIG_TYPE", "FILE", text, Mapped, "`FILE` or `GRPC_XDS_SOTW`; others are an error"},
	{"FORCE_START_WITHOUT_INITIAL_CONFIG", "false", boolean, Mapped,
		"true: headgate does not wait for rules; else health checks fail until the first have come"},
	{"CONFIG_GRPC_XDS_NODE_ID", "default", text, Mapped, ""},
	{"CONFIG_GRPC_XDS_NODE_METADATA", "", text, Mapped, "`name=value`, separated by commas"},
	{"CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000", text, Mapped, ""},
	{"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "", text, Mapped, "`name:value`, separated by commas"},
	{"CONFIG_GRPC_XDS_SERVER_USE_TLS", "false", boolean, Mapped, "files without it: no TLS, and a warning"},
	{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "", text, Mapped, "the files are read again for each connection"},
	{"CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "", text, Mapped, ""},
	{"CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "", text, Mapped, "not set: the authorities of the system"},
	{"CONFIG_GRPC_XDS_SERVER_TLS_SAN", "", text, Mapped, "the name that the server's certificate must have"},
	{"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "3s", duration, Ignored, notXDS},
	{"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "10s", duration, Ignored, notXDS},
	{"XDS_CLIENT_BACKOFF_MAX_INTERVAL", "60s", duration, Ignored, notXDS},
	{"XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "0.5", ratio, Ignored, notXDS},
	{"XDS_CLIENT_BACKOFF_JITTER", "true", boolean, Ignored, notXDS},
	{"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "", number, Mapped, "at least 64 MiB"},

	{"RUNTIME_ROOT", "/srv/runtime_data/current", text, Mapped, "a directory that does not exist is an error"},
	{"RUNTIME_SUBDIRECTORY", "", text, Mapped, ""},
	{"RUNTIME_APPDIRECTORY", "config", text, Mapped, ""},
	{"RUNTIME_IGNOREDOTFILES", "false", boolean, Mapped,
		"names that begin with two dots, where Kubernetes keeps versions, are never read"},
	{"RUNTIME_WATCH_ROOT", "true", boolean, Mapped,
		"headgate notices both kinds of change in both modes; true: files beside the directory whose names begin with its " +
			"name and a dot are rules too"},
	{"MERGE_DOMAIN_CONFIG", "false", boolean, Mapped, ""},
	{"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "false", boolean, Mapped, "true: a start without any file of rules is " +
		"refused, and with xDS health checks fail until the first rules have come"},

	{"BACKEND_TYPE", "redis", text, Mapped,
		"`redis`, or `memory`, which the reference does not have; `memcache` is an error"},
	{"MEMCACHE_HOST_PORT", "", text, Ignored, noMemcache},
	{"MEMCACHE_MAX_IDLE_CONNS", "2", number, Ignored, noMemcache},
	{"MEMCACHE_SRV", "", text, Ignored, noMemcache},
	{"MEMCACHE_SRV_REFRESH", "0", duration, Ignored, noMemcache},
	{"MEMCACHE_TLS", "false", boolean, Ignored, noMemcache},
	{"MEMCACHE_TLS_CLIENT_CERT", "", text, Ignored, noMemcache},
	{"MEMCACHE_TLS_CLIENT_KEY", "", text, Ignored, noMemcache},
	{"MEMCACHE_TLS_CACERT", "", text, Ignored, noMemcache},
	{"MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "false", boolean, Ignored, noMemcache},

	{"REDIS_SOCKET_TYPE", "unix", text, Mapped, "`unix` or `tcp`; a Cluster and Sentinels are reached by TCP without it"},
	{"REDIS_TYPE", "SINGLE", text, Mapped, "`SINGLE`, `SENTINEL` or `CLUSTER`, in any case; others are an error"},
	{"REDIS_URL", "/var/run/nutcracker/ratelimit.sock", text, Mapped,
		"must be set unless that socket is there; `host:port` or `redis://user:password@host:port/db`, a list for a " +
			"Cluster, the master's name and a list for Sentinels"},
	{"REDIS_AUTH", "", text, Mapped, "`password` or `user:password`; beats what `REDIS_URL` has"},
	{"REDIS_AUTH_FILE", "", text, Mapped, "read again for each connection"},
	{"REDIS_SENTINEL_AUTH", "", text, Mapped, ""},
	{"REDIS_TLS", "false", boolean, Mapped, ""},
	{"REDIS_TLS_CLIENT_CERT", "", text, Mapped, "without `REDIS_TLS` a warning, as the next two"},
	{"REDIS_TLS_CLIENT_KEY", "", text, Mapped, ""},
	{"REDIS_TLS_CACERT", "", text, Mapped, "authorities of the system do not count beside it"},
	{"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "false", boolean, Mapped,
		"the chain of the certificate is verified all the same"},
	{"REDIS_POOL_SIZE", "10", number, Mapped, "at least 20"},
	{"REDIS_TIMEOUT", "10s", duration, Mapped, "also bounds a call; the caller's deadline still comes first"},
	{"REDIS_LAYOUT", "headgate", text, Mapped,
		"the reference does not read it; `envoy`: headgate counts in the reference's own counters, " +
			"and charges refused requests as it does, so that both can decide side by side; see [a canary](#canary)"},
	{"CACHE_KEY_PREFIX", "", text, Mapped, "is followed by headgate's own prefix in headgate's own keys"},
	{"REDIS_AWS_IAM_AUTH", "false", boolean, Mapped,
		"true is an error: have a sidecar write the password, and name its file in `REDIS_AUTH_FILE`"},
	{"REDIS_PIPELINE_WINDOW", "0", duration, Ignored, builtIn},
	{"REDIS_PIPELINE_LIMIT", "0", number, Ignored, builtIn},
	{"REDIS_CLUSTER_PIPELINE_PARALLELISM", "1", number, Ignored, builtIn},
	{"REDIS_POOL_ON_EMPTY_BEHAVIOR", "WAIT", text, Ignored, builtIn},
	{"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "false", boolean, Ignored,
		"`/readyz` tells of Redis; policies answer without it, so `/healthcheck` stays 200"},
	{"REDIS_STARTUP_INITIAL_INTERVAL", "1s", duration, Ignored, "headgate starts without Redis"},
	{"REDIS_STARTUP_MAX_INTERVAL", "30s", duration, Ignored, "headgate starts without Redis"},
	{"REDIS_STARTUP_MAX_ELAPSED_TIME", "0", duration, Ignored, "headgate starts without Redis"},
	{"REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR", "false", boolean, Ignored, "headgate asks again who is master"},
	{"REDIS_PERSECOND", "false", boolean, Mapped, "true: limits per second are kept in a second Redis; `REDIS_TLS_*`, " +
		"`CACHE_KEY_PREFIX` and `REDIS_LAYOUT` are for both"},
	{"REDIS_PERSECOND_SOCKET_TYPE", "unix", text, Mapped, perSecond},
	{"REDIS_PERSECOND_TYPE", "SINGLE", text, Mapped, ""},
	{"REDIS_PERSECOND_URL", "/var/run/nutcracker/ratelimitpersecond.sock", text, Mapped,
		"must be set, if `REDIS_PERSECOND` is true and that socket is not there"},
	{"REDIS_PERSECOND_POOL_SIZE", "10", number, Mapped, ""},
	{"REDIS_PERSECOND_AUTH", "", text, Mapped, ""},
	{"REDIS_PERSECOND_AUTH_FILE", "", text, Mapped, ""},
	{"REDIS_PERSECOND_TLS", "false", boolean, Mapped, ""},
	{"REDIS_PERSECOND_SENTINEL_AUTH", "", text, Mapped, ""},
	{"REDIS_PERSECOND_PIPELINE_WINDOW", "0", duration, Ignored, builtIn},
	{"REDIS_PERSECOND_PIPELINE_LIMIT", "0", number, Ignored, builtIn},
	{"REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", "1", number, Ignored, builtIn},
	{"REDIS_PERSECOND_TIMEOUT", "10s", duration, Mapped, ""},
	{"REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", "WAIT", text, Ignored, builtIn},
	{localCache, "0", number, Mapped, "refusals are repeated without Redis for up to a second, always; more than 0: " +
		"metrics also have `over_limit_with_local_cache` and `localcache`, about limits that this process knows to be " +
		"used up"},
	{"EXPIRATION_JITTER_MAX_SECONDS", "300", number, Mapped,
		"with `REDIS_LAYOUT=envoy`; else keys expire when their window ends"},
	{stopIncrement, "false", boolean, Mapped,
		"true: a refused request is charged to no limit that has room"},

	{"SHADOW_MODE", "false", boolean, Mapped, "read once, at the start"},
	{"QUOTA_MODE", "false", boolean, Mapped, "read once, at the start"},
	{"RESPONSE_DYNAMIC_METADATA", "false", boolean, Mapped, "read once, at the start"},
	{"ENABLE_NEGATIVE_HITS", "false", boolean, Ignored, "`is_negative_hits` of a descriptor always gives hits back"},
	{"USE_CALENDAR_MONTH_RATE_LIMIT", "false", boolean, Mapped,
		"months of the calendar in UTC; a year has 365 days all the same"},
	{"LIMIT_RESPONSE_HEADERS_ENABLED", "false", boolean, Mapped, ""},
	{"LIMIT_LIMIT_HEADER", "RateLimit-Limit", text, Mapped, ""},
	{"LIMIT_REMAINING_HEADER", "RateLimit-Remaining", text, Mapped, ""},
	{"LIMIT_RESET_HEADER", "RateLimit-Reset", text, Mapped, ""},

	{"USE_PROMETHEUS", "false", boolean, Mapped, "true: opens `PROMETHEUS_ADDR`; else `/metrics` is on the debug port"},
	{"PROMETHEUS_ADDR", ":9090", text, Mapped, ""},
	{"PROMETHEUS_PATH", "/metrics", text, Mapped, ""},
	{"PROMETHEUS_MAPPER_YAML", "", text, Mapped,
		"not read; a warning if the file exists: metrics have the names of the reference's own mapping"},
	{"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "false", boolean, Warned, "response times are in seconds"},
	{"NEAR_LIMIT_RATIO", "0.8", ratio, Mapped, ""},
	{"USE_STATSD", "true", boolean, Mapped,
		"by the reference's names, but without `cx_total`, `cx_local_close` and `runtime`; not set, and " +
			"`USE_PROMETHEUS` is true: metrics are not sent"},
	{"STATSD_HOST", "localhost", text, Mapped, ""},
	{"STATSD_PORT", "8125", port, Mapped, ""},
	{"STATSD_PROTOCOL", "tcp", text, Mapped, "`tcp` or `udp`"},
	{"USE_DOG_STATSD", "false", boolean, Mapped, "true: metrics are sent as DogStatsD, by UDP, with `EXTRA_TAGS` as tags"},
	{"USE_DOG_STATSD_MOGRIFIERS", "", text, Warned,
		"metrics keep the reference's names: DOG_STATSD_MOGRIFIER_* are not read"},
	{"STATS_FLUSH_INTERVAL", "10s", duration, Mapped, ""},
	{"DISABLE_STATS", "false", boolean, Mapped, "true: metrics are not sent"},
	{"EXTRA_TAGS", "", text, Mapped, "`key:value`, separated by commas, for StatsD; metrics for Prometheus do not have " +
		"them: let it add labels as it scrapes"},
	{"TRACING_ENABLED", "false", boolean, Mapped,
		"`OTEL_EXPORTER_OTLP_*` have their meaning; [spans](operations.md#tracing) are headgate's, without values of " +
			"descriptors; W3C Trace Context is read, and B3 where there is none; if `OTEL_TRACES_EXPORTER` is set, no " +
			"`TRACING_*` has an effect"},
	{"TRACING_SERVICE_NAME", "RateLimit", text, Mapped, ""},
	{"TRACING_SERVICE_NAMESPACE", "", text, Mapped, "as `service.namespace`"},
	{"TRACING_SERVICE_INSTANCE_ID", "", text, Mapped, "as `service.instance.id`; not set: a random one"},
	{"TRACING_EXPORTER_PROTOCOL", "http", text, Mapped, "`http` or `grpc`; others are an error"},
	{"TRACING_SAMPLING_RATE", "1", ratio, Mapped, "of calls without a trace; others are sampled as their trace is"},
}

// byName finds the row of a variable.
var byName = func() map[string]int {
	m := make(map[string]int, len(Variables))
	for i := range Variables {
		m[Variables[i].Name] = i
	}
	return m
}()
