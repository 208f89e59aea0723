package envoyconf

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
	for _, cl := range c.clusters(false) {
		cl := cl.(noted)
		add(cl.comment, "CLUSTER", nil, "ADD", cl.value)
	}
	return mapping{
		f("apiVersion", "networking.istio.io/v1alpha3"),
		f("kind", "EnvoyFilter"),
		f("metadata", one("name", "headgate")),
		f("spec", one("configPatches", patches)),
	}
}
