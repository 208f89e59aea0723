//go:build egtest

package egtest

import (
	"fmt"
	"path/filepath"
	"strings"
)

// resources returns what Envoy Gateway reads: a Gateway with two listeners, and a route
// and a policy for each case.
func (l *lab) resources(cases []scenario) string {
	list := []string{
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: envoy-gateway-system}\n",
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n",
		l.secret("envoy"),
		`apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: eg}
spec:
  controllerName: gateway.envoyproxy.io/gatewayclass-controller
  parametersRef: {group: gateway.envoyproxy.io, kind: EnvoyProxy, name: host, namespace: default}
`, `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyProxy
metadata: {name: host, namespace: default}
spec: {provider: {type: Host, host: {envoyVersion: 1.40.0}}}
`, fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: eg, namespace: default}
spec:
  gatewayClassName: eg
  listeners:
  - {name: http, protocol: HTTP, port: %d}
  - {name: other, protocol: HTTP, port: %d}
`, gatewayPort, otherPort), `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: backend, namespace: default}
spec: {endpoints: [{ip: {address: 127.0.0.1, port: 3000}}]}
`, fmt.Sprintf(`apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyPatchPolicy
metadata: {name: ratelimit, namespace: default}
spec:
  targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: eg}
  type: JSONPatch
  jsonPatches:
  - type: type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: ratelimit_cluster
    operation:
      op: replace
      path: /transport_socket/typed_config/common_tls_context/validation_context/trusted_ca/filename
      value: %s
  - type: type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: ratelimit_cluster
    operation:
      op: replace
      path: /load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address
      value: {address: 127.0.0.1, port_value: %d}
%s`, filepath.Join(l.home, "certs", "envoy", "ca.crt"), grpcPort, l.secondPod()),
		route("ready"), policy("ready", []string{"ready"}, "", "- {limit: {requests: 1000000, unit: Hour}}"),
	}
	for _, c := range cases {
		hosts := c.routes()
		for _, h := range hosts {
			list = append(list, route(h))
			if c.lua != "" {
				list = append(list, extension(h, c.lua))
			}
			if c.also != nil {
				if more := c.also(h); more != "" {
					list = append(list, more)
				}
			}
		}
		list = append(list, policy(c.host, hosts, c.merge, c.rules))
	}
	return strings.Join(list, "---\n")
}

// secondPod adds an endpoint of the rate limit service, as a second pod behind its Service is one.
func (l *lab) secondPod() string {
	if !l.canary {
		return ""
	}
	return fmt.Sprintf(`  - type: type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: ratelimit_cluster
    operation:
      op: add
      path: /load_assignment/endpoints/0/lb_endpoints/-
      value: {endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}
`, grpcPort+canaryPorts)
}

func route(name string) string {
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %[1]s, namespace: default}
spec:
  parentRefs: [{name: eg}]
  hostnames: [%[1]s.example.com]
  rules:
  - matches: [{path: {type: PathPrefix, value: /}}]
    backendRefs: [{group: gateway.envoyproxy.io, kind: Backend, name: backend}]
`, name)
}

func policy(name string, routes []string, merge, rules string) string {
	var targets []string
	for _, r := range routes {
		targets = append(targets, "{group: gateway.networking.k8s.io, kind: HTTPRoute, name: "+r+"}")
	}
	if merge != "" {
		merge = "  mergeType: " + merge + "\n"
	}
	rules = "      " + strings.ReplaceAll(strings.TrimSpace(rules), "\n", "\n      ")
	return fmt.Sprintf(`apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: %s, namespace: default}
spec:
  targetRefs: [%s]
%s  rateLimit:
    type: Global
    global:
      rules:
%s
`, name, strings.Join(targets, ", "), merge, rules)
}

func extension(route, lua string) string {
	lua = "      " + strings.ReplaceAll(strings.TrimSpace(lua), "\n", "\n      ")
	return fmt.Sprintf(`apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyExtensionPolicy
metadata: {name: %[1]s, namespace: default}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: %[1]s}]
  lua:
  - type: Inline
    inline: |
%[2]s
`, route, lua)
}
