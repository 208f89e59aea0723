package envoyconf

import (
	"slices"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/ratelimit"
)

// bootstrap is a whole configuration.
func (c *Config) bootstrap() mapping {
	admin, _ := address(c.opt.Admin)
	return mapping{
		c.node(),
		{"admin", one("address", flow{admin}), "For people and scrapers on this host only: it can stop Envoy."},
		f("static_resources", mapping{f("listeners", list{c.listener()}), f("clusters", c.clusters(true))}),
	}
}

// node says who this Envoy is.
func (c *Config) node() field {
	n := mapping{f("id", c.opt.Owner), f("cluster", c.wants.domain)}
	comment := ""
	switch {
	case c.opt.started():
		n, comment = n[1:], "Start Envoy with its name, which is also that in the environment:\n  --service-node "+
			`"`+strings.NewReplacer("%ENVIRONMENT(", "${", ")%", "}").Replace(c.opt.Owner)+`"`
	case c.wants.Leases:
		comment = "One name for each Envoy, here and wherever " + ratelimit.MetadataOwner + " is set below: when an\n" +
			"Envoy is gone, the requests of its name end, unless another one has it too."
	}
	return field{"node", flow{n}, comment}
}

func (c *Config) listener() mapping {
	at, _ := address("0.0.0.0:0")
	at[0].value = mapping{f("address", "0.0.0.0"), f("port_value", c.opt.Listen)}
	return mapping{
		f("name", "ingress"),
		f("address", flow{at}),
		f("filter_chains", list{one("filters", list{
			extension("envoy.filters.network.http_connection_manager", typed(connectionManager, c.manager()...)),
		})}),
	}
}

const connectionManager = "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"

// manager is the HTTP connection manager of a whole configuration.
func (c *Config) manager() mapping {
	var filters list
	for _, fl := range c.filters() {
		filters = append(filters, fl)
	}
	filters = append(filters, extension("envoy.filters.http.router", typed("extensions.filters.http.router.v3.Router")))
	host := mapping{
		f("name", "all"),
		f("domains", list{"*"}),
		{"typed_per_filter_config", c.perRoute(), "For all routes, but those that have a typed_per_filter_config for the same filter."},
		f("routes", list{mapping{
			f("match", flow{one("prefix", "/")}),
			f("route", flow{one("cluster", appCluster)}),
		}}),
	}
	m := mapping{
		f("stat_prefix", "ingress"),
		{"use_remote_address", true, "The client's address is the peer's, not what x-forwarded-for claims."},
		f("normalize_path", true),
		f("merge_slashes", true),
		{"upgrade_configs", list{flow{one("upgrade_type", "websocket")}}, "Without this, Envoy refuses websockets."},
	}
	m = append(m, c.managerParts()...)
	return append(m,
		f("http_filters", filters),
		f("route_config", mapping{f("name", "local"), f("virtual_hosts", list{host})}))
}

// idleTimeout is Envoy's own for streams; a delayed request is idle.
const idleTimeout = 5 * time.Minute

// managerParts are the fields of the HTTP connection manager that rules need.
func (c *Config) managerParts() mapping {
	var m mapping
	if reply, ok := c.localReply(); ok {
		m = append(m, field{"local_reply_config", reply, "A refusal has the status of its tier; statuses that are not listed here become 429."})
	}
	if c.wants.delay >= idleTimeout-time.Minute {
		m = append(m, field{"stream_idle_timeout", seconds(c.wants.delay + time.Minute), "Longer than the longest delay."})
	}
	if c.wants.Leases {
		m = append(m,
			field{"access_log_options", flow{one("access_log_flush_interval", seconds(c.wants.flush))},
				"Tells headgate which requests are still in flight, so often that their leases do not\nexpire. A third of the shortest lease_ttl and of --owner-grace, at most 5 s."},
			f("access_log", list{c.accessLog()}))
	}
	return m
}

// clusters are headgate and, if asked for, the application.
func (c *Config) clusters(app bool) list {
	all := list{noted{"Headgate, where it is asked.", append(c.secured(cluster(askCluster, c.opt.Address)), append(grpcCluster(),
		field{"circuit_breakers", one("thresholds", list{flow{mapping{
			f("priority", "DEFAULT"), f("max_requests", mostCalls), f("max_pending_requests", mostCalls), f("max_retries", mostCalls),
		}}}), "Calls beyond these numbers fail at once, and a request's end would be lost; the defaults\nare 1024, 1024 and 3."},
		f("health_checks", list{mapping{
			f("timeout", "1s"), f("interval", "2s"), f("no_traffic_interval", "2s"),
			f("unhealthy_threshold", 2), f("healthy_threshold", 1),
			f("grpc_health_check", flow{one("service_name", "ratelimit")}),
		}}),
	)...)}}
	if c.wants.Leases {
		all = append(all, noted{"Headgate, where the access log goes.", append(c.secured(cluster(logCluster, c.opt.Services)), grpcCluster()...)})
	}
	if app {
		all = append(all, cluster(appCluster, []string{c.opt.Upstream}))
	}
	return all
}

// mostCalls may be in flight to headgate at once.
const mostCalls = 100_000

func cluster(name string, addresses []string) mapping {
	var endpoints list
	for _, a := range addresses {
		at, _ := address(a) // options are checked
		endpoints = append(endpoints, flow{one("endpoint", one("address", at))})
	}
	kind := "STATIC"
	if slices.ContainsFunc(addresses, isName) {
		kind = "STRICT_DNS"
	}
	return mapping{
		f("name", name), f("type", kind), f("connect_timeout", "1s"),
		f("load_assignment", mapping{f("cluster_name", name), f("endpoints", list{one("lb_endpoints", endpoints)})}),
	}
}

// secured makes a cluster use TLS, if that is configured. Envoy reads the files again when the
// whole directory is moved, as Kubernetes does to change them.
func (c *Config) secured(cluster mapping) mapping {
	t := c.opt.TLS
	if t.CA == "" {
		return cluster
	}
	file := func(name string) flow { return flow{one("filename", name)} }
	var names list
	for _, san := range t.SANs {
		kind := "DNS"
		if strings.Contains(san, "://") {
			kind = "URI"
		}
		names = append(names, flow{mapping{f("san_type", kind), f("matcher", one("exact", san))}})
	}
	context := mapping{f("alpn_protocols", list{"h2"})}
	if t.Cert != "" {
		context = append(context, f("tls_certificates", list{mapping{f("certificate_chain", file(t.Cert)), f("private_key", file(t.Key))}}))
	}
	context = append(context, f("validation_context", mapping{
		f("trusted_ca", file(t.CA)),
		field{"match_typed_subject_alt_names", names, "Any other certificate of this authority is refused."},
	}))
	tls := typed("extensions.transport_sockets.tls.v3.UpstreamTlsContext", f("common_tls_context", context))
	if at := slices.IndexFunc(t.SANs, func(san string) bool { return !strings.Contains(san, "://") }); at >= 0 {
		tls = append(tls, f("sni", t.SANs[at]))
	}
	return append(cluster, f("transport_socket", extension("envoy.transport_sockets.tls", tls)))
}

// grpcCluster makes a cluster speak gRPC, and notice a peer that has vanished.
func grpcCluster() mapping {
	const options = "extensions.upstreams.http.v3.HttpProtocolOptions"
	return mapping{f("typed_extension_protocol_options", one("envoy."+options, typed(options,
		f("explicit_http_config", one("http2_protocol_options",
			flow{one("connection_keepalive", mapping{f("interval", "10s"), f("timeout", "5s")})})))))}
}

// fragments are the parts of a configuration, by where they belong.
func (c *Config) fragments() mapping {
	var filters list
	for _, fl := range c.filters() {
		filters = append(filters, fl)
	}
	m := mapping{{"http_connection_manager", append(c.managerParts(),
		field{"http_filters", filters, "In this order, before the router; whatever refuses requests too goes before them."}),
		"Fields of the HTTP connection manager."}}
	return append(m,
		field{"virtual_host", one("typed_per_filter_config", c.perRoute()), "Fields of a virtual host, or of routes."},
		field{"clusters", c.clusters(false), "Among static_resources."})
}
