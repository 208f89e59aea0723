package envoyconf

import (
	"cmp"
	"strings"
)

// Istio returns an EnvoyFilter that puts the parts into the sidecars of its
// namespace.
func (c *Config) Istio() ([]byte, error) {
	return render(c.about("an EnvoyFilter of Istio. Without a\nworkloadSelector it is for every sidecar of its namespace."), c.envoyFilter())
}

func (c *Config) envoyFilter() mapping {
	var patches list
	add := func(comment, to string, match mapping, operation string, value any) {
		patches = append(patches, noted{comment, mapping{
			f("applyTo", to),
			f("match", append(one("context", "SIDECAR_INBOUND"), match...)),
			f("patch", mapping{f("operation", operation), f("value", value)}),
		}})
	}
	manager := one("name", "envoy.filters.network.http_connection_manager")
	router := one("listener", one("filterChain", one("filter", append(manager, f("subFilter", one("name", "envoy.filters.http.router"))))))
	// Each goes right before the router, so they end up in this order.
	for _, filter := range c.filters() {
		add(filter.comment, "HTTP_FILTER", router, "INSERT_BEFORE", filter.value)
	}
	if parts := c.managerParts(); len(parts) > 0 {
		add("Statuses of refusals, and the access log.", "NETWORK_FILTER",
			one("listener", one("filterChain", one("filter", manager))), "MERGE",
			one("typed_config", typed(connectionManager, parts...)))
	}
	add("What headgate is asked and told.", "VIRTUAL_HOST",
		one("routeConfiguration", one("vhost", one("route", one("action", "ANY")))), "MERGE",
		one("typed_per_filter_config", c.perRoute()))
	for _, cl := range c.istioClusters() {
		cl := cl.(noted)
		add(cl.comment, "CLUSTER", nil, "ADD", cl.value)
	}
	return mapping{
		f("apiVersion", "networking.istio.io/v1alpha3"),
		f("kind", "EnvoyFilter"),
		f("metadata", c.filterMetadata()),
		f("spec", append(c.workloads(), f("configPatches", patches))),
	}
}

// istioClusters are the clusters that the mesh does not have.
func (c *Config) istioClusters() list {
	if c.opt.Istio.Service != "" {
		return nil
	}
	return c.clusters(false)
}

func (c *Config) filterMetadata() mapping {
	m := one("name", cmp.Or(c.opt.Istio.Name, "headgate"))
	if namespace := c.opt.Istio.Namespace; namespace != "" {
		m = append(m, f("namespace", namespace))
	}
	return m
}

// workloads selects the pods that the filter is for.
func (c *Config) workloads() mapping {
	var labels mapping
	for _, label := range c.opt.Istio.Selector {
		name, value, _ := strings.Cut(label, "=") // options are checked
		labels = append(labels, f(name, value))
	}
	if labels == nil {
		return nil
	}
	return one("workloadSelector", one("labels", labels))
}
