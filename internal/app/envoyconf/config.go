package envoyconf

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/ratelimit"
)

// Names in the configuration. The first is also where Envoy keeps what headgate
// says of a request, whatever its filters are called.
const (
	metadataNamespace = "envoy.filters.http.ratelimit"

	askFilter     = "envoy.filters.http.ratelimit"
	releaseFilter = "headgate.release"

	askCluster = "headgate"
	logCluster = "headgate-access-log"
	appCluster = "application"
)

// A Config is the configuration that a domain's rules need.
type Config struct {
	opt          Options
	wants        *wants
	resourceHits bool
}

// New finds what the rules need, from the set and from the spec that it was built
// from: the set has the rules compiled, without the keys of descriptors.
func New(set *descriptors.Set, spec *descriptors.Spec, opt Options) (*Config, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	w, err := find(set, spec, &opt)
	if err != nil {
		return nil, err
	}
	return &Config{opt: opt, wants: w, resourceHits: w.resourceHits(set)}, nil
}

// Bootstrap returns a whole configuration, which runs as it is.
func (c *Config) Bootstrap() ([]byte, error) {
	return render(c.about("all of it, for\nenvoy -c FILE."), c.bootstrap())
}

// Fragments returns the parts alone, to be put into a configuration that there
// is already.
func (c *Config) Fragments() ([]byte, error) {
	return render(c.about("its parts, each with\nwhere it belongs."), c.fragments())
}

// about is what stands above everything.
func (c *Config) about(what string) string {
	least := Oldest
	if c.wants.Hits {
		least = withHits
	}
	return fmt.Sprintf("Made by headgate for the rules of domain %s: %s\nNeeds Envoy %v or later. Make it again when the rules match on other headers or\nentries, have other statuses, or begin to limit requests in flight.",
		strings.Join(strings.Fields(c.wants.domain), " "), what, least)
}

// Ports of the Service that the chart makes.
const (
	servicePort  = 8081
	servicesPort = 8082
)

// askCluster is the cluster where headgate is asked, logCluster where the access log goes.
func (c *Config) askCluster() string { return c.meshCluster(askCluster, servicePort) }
func (c *Config) logCluster() string { return c.meshCluster(logCluster, servicesPort) }

// meshCluster returns Istio's name for the cluster of a port of headgate's Service, or ours
// if no Service is set.
func (c *Config) meshCluster(ours string, port int) string {
	if c.opt.Istio.Service == "" {
		return ours
	}
	return fmt.Sprintf("outbound|%d||%s", port, c.opt.Istio.Service)
}

// filters are the HTTP filters before the router, in order.
func (c *Config) filters() []noted {
	var all []noted
	if c.wants.delays {
		all = append(all, noted{"Clients must not choose delays.", c.dropDelay("headgate.no-delay-from-clients")})
	}
	all = append(all, noted{"Asks headgate before a request passes.", c.ask()})
	if c.wants.Leases {
		all = append(all, noted{
			"Reports a request's end to headgate. It is another filter because it may keep trying for\n" +
				"longer than a request may wait, and before 1.38 Envoy can crash where one\nfilter does both (CVE-2026-26330).",
			c.tellEnd(),
		})
	}
	if c.wants.delays {
		all = append(all,
			noted{"Delays requests as tiers say.", extension("envoy.filters.http.fault", typed("extensions.filters.http.fault.v3.HTTPFault",
				f("delay", flow{mapping{f("header_delay", mapping{}), f("percentage", mapping{f("numerator", 100), f("denominator", "HUNDRED")})}})))},
			noted{"The application need not see it.", c.dropDelay("headgate.no-delay-upstream")},
		)
	}
	return all
}

// extension is a filter, or an access log.
func extension(name string, config mapping) mapping {
	return mapping{f("name", name), f("typed_config", config)}
}

// dropDelay removes the headers by which Envoy's fault filter delays.
func (c *Config) dropDelay(name string) mapping {
	var mutations list
	for _, h := range []string{ratelimit.DelayHeader, ratelimit.DelayHeader + "-percentage"} {
		mutations = append(mutations, flow{one("remove", h)})
	}
	return extension(name, typed("extensions.filters.http.header_mutation.v3.HeaderMutation",
		f("mutations", one("request_mutations", mutations))))
}

// ask is the filter that asks.
func (c *Config) ask() mapping {
	m := typed("extensions.filters.http.ratelimit.v3.RateLimit",
		f("domain", c.wants.domain),
		field{"timeout", seconds(c.opt.Timeout), "Longest wait for an answer. Never 0s: before 1.38 every call would fail at once."},
		field{"failure_mode_deny", c.opt.Deny, "Without an answer in time: true refuses with status 500, false lets pass."},
	)
	if c.wants.limits {
		m = append(m, field{"enable_x_ratelimit_headers", "DRAFT_VERSION_03", "x-ratelimit-limit, -remaining and -reset on every response."})
	}
	service := mapping{f("envoy_grpc", flow{one("cluster_name", c.askCluster())})}
	if c.wants.Leases {
		service = append(service,
			field{"retry_policy", retry(2, "0.025s", "0.25s"), "A repeated call has the same id, and gets the same lease."},
			f("initial_metadata", c.metadata()))
	}
	return extension(askFilter, append(m,
		field{"rate_limited_as_resource_exhausted", true, "gRPC clients see RESOURCE_EXHAUSTED, not UNAVAILABLE."},
		f("rate_limit_service", mapping{f("transport_api_version", "V3"), f("grpc_service", service)}),
	))
}

// Ends are reported for this long, in so many tries. Meanwhile headgate restarts, or
// Envoy finds another replica.
const (
	endTimeout = "30s"
	endTries   = 12
)

// tellEnd is the filter that tells ends and never asks.
func (c *Config) tellEnd() mapping {
	return extension(releaseFilter, typed("extensions.filters.http.ratelimit.v3.RateLimit",
		f("domain", c.wants.domain),
		f("timeout", endTimeout),
		f("rate_limit_service", mapping{
			f("transport_api_version", "V3"),
			f("grpc_service", mapping{
				f("envoy_grpc", flow{one("cluster_name", c.askCluster())}),
				f("retry_policy", retry(endTries, "0.2s", "5s")),
			}),
		}),
	))
}

// retry repeats a call, with another replica if there is one.
func retry(tries int, base, most string) mapping {
	const others = "envoy.retry_host_predicates.previous_hosts"
	return mapping{
		f("num_retries", tries),
		f("retry_on", "connect-failure,reset,unavailable"),
		f("retry_back_off", flow{mapping{f("base_interval", base), f("max_interval", most)}}),
		f("retry_host_predicate", list{extension(others, typed("extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"))}),
		f("host_selection_retry_max_attempts", 5),
	}
}

// metadata is what headgate gets with a call.
func (c *Config) metadata() list {
	all := list{header(ratelimit.MetadataID, "%UNIQUE_ID%")}
	if c.opt.Owner != "" {
		all = append(all, header(ratelimit.MetadataOwner, c.opt.Owner))
	}
	if c.opt.LeaseKey != ratelimit.DefaultLeaseKey {
		all = append(all, header(ratelimit.MetadataLeaseKey, c.opt.LeaseKey))
	}
	return all
}

func header(key, value string) flow { return flow{mapping{f("key", key), f("value", value)}} }

// perRoute is typed_per_filter_config: what is asked and told for a route.
func (c *Config) perRoute() mapping {
	begin, end, unknown := c.asks()
	ask := field{"rate_limits", append(begin, end...), notDerived(c.wants, unknown)}
	m := mapping{f(askFilter, typed("extensions.filters.http.ratelimit.v3.RateLimitPerRoute", ask))}
	if c.wants.Leases {
		m = append(m, f(releaseFilter, typed("extensions.filters.http.ratelimit.v3.RateLimitPerRoute", f("rate_limits", c.release()))))
	}
	return m
}

// LeftOut names the rules that the configuration does not ask about, because
// they do not say where the values of their entries come from; "" if it asks
// about all of them.
func (c *Config) LeftOut() string {
	_, _, unknown := c.asks()
	return notDerived(c.wants, unknown)
}

// notDerived names what is left to the operator.
func notDerived(w *wants, unknown []*shape) string {
	var b strings.Builder
	if w.SOAPBinding {
		b.WriteString("Some resources have a binding. Routes that belong to one say so in the actions of a\n" +
			"descriptor of their own, after path: generic_key with descriptor_key soap_binding.\n")
	}
	if len(unknown) > 0 {
		b.WriteString("Rules for descriptors with the entries below are not asked about: where the values\n" +
			"come from is not in the rules. Add actions that send them, in this order:\n")
		for _, s := range unknown {
			b.WriteString("  " + strings.Join(strings.Fields(s.String()), " "))
			if s.hits {
				b.WriteString(" (by hits: and once more, with apply_on_stream_done and is_negative_hits)")
			}
			b.WriteString("\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// localReply gives refusals the status that their tier says. One of 429 needs
// nothing.
func (c *Config) localReply() (mapping, bool) {
	var mappers list
	for _, status := range c.wants.Statuses {
		if status == 429 {
			continue
		}
		mappers = append(mappers, mapping{
			f("filter", one("and_filter", one("filters", list{
				flow{one("response_flag_filter", one("flags", list{"RL"}))},
				one("metadata_filter", mapping{
					f("match_if_key_not_found", false),
					f("matcher", flow{mapping{
						f("filter", metadataNamespace),
						f("path", list{one("key", "deny_status")}),
						f("value", one("string_match", one("exact", fmt.Sprint(status)))),
					}}),
				}),
			}))),
			f("status_code", status),
		})
	}
	return one("mappers", mappers), len(mappers) > 0
}

// mostBuffered is how long entries of the access log may wait for others.
const mostBuffered = time.Second

// accessLog tells headgate of requests that have a lease, while they are in
// flight and when they end.
func (c *Config) accessLog() mapping {
	service := mapping{f("envoy_grpc", flow{one("cluster_name", c.logCluster())})}
	if c.opt.Owner != "" && !c.opt.started() {
		service = append(service, field{"initial_metadata", list{header(ratelimit.MetadataOwner, c.opt.Owner)}, "The same owner as where headgate is asked."})
	}
	return mapping{
		f("name", "envoy.access_loggers.http_grpc"),
		f("filter", c.logFilter()),
		f("typed_config", typed("extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig",
			f("common_config", mapping{
				f("log_name", "headgate"),
				f("transport_api_version", "V3"),
				f("buffer_flush_interval", seconds(min(c.wants.flush/5, mostBuffered))),
				f("grpc_service", service),
			}))),
	}
}

// logFilter leaves requests without a lease out of the access log.
func (c *Config) logFilter() mapping {
	lease := append(c.leaseKey("filter").value.(mapping), f("value", one("present_match", true)))
	return one("and_filter", one("filters", list{
		one("metadata_filter", mapping{f("match_if_key_not_found", false), f("matcher", flow{lease})}),
		flow{one("log_type_filter", one("types", list{"DownstreamPeriodic", "DownstreamEnd"}))},
	}))
}
