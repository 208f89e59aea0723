// Command bootstrap prints the bootstrap configuration that Istio's agent makes for the Envoy of
// a sidecar, from the environment that Istio's injector gives it.
//
//	bootstrap TEMPLATE HOST:PORT
//
// TEMPLATE is Istio's envoy_bootstrap.json. Two things differ, because several Envoys run on the
// machine of a test and no agent does: Envoy's own ports are any that are free, and it asks the
// control plane at HOST:PORT itself, not through the agent's socket.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"istio.io/istio/pkg/bootstrap"
	"istio.io/istio/pkg/config/mesh"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bootstrap:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: bootstrap TEMPLATE HOST:PORT")
	}
	pod, namespace, ip := os.Getenv("POD_NAME"), os.Getenv("POD_NAMESPACE"), os.Getenv("INSTANCE_IP")
	node, err := bootstrap.GetNodeMetaData(bootstrap.MetadataOptions{
		// As pkg/istio-agent names a sidecar.
		ID:                  fmt.Sprintf("sidecar~%s~%s.%s~%s.svc.cluster.local", ip, pod, namespace, namespace),
		Envs:                os.Environ(),
		InstanceIPs:         []string{ip},
		ProxyConfig:         mesh.DefaultProxyConfig(),
		EnvoyStatusPort:     15021,
		EnvoyPrometheusPort: 15090,
	})
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := bootstrap.New(bootstrap.Config{Node: node}).WriteTo(args[0], &text); err != nil {
		return err
	}
	var config map[string]any
	if err := json.Unmarshal(text.Bytes(), &config); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	static := config["static_resources"].(map[string]any)
	setPorts(config["admin"], 0)
	setPorts(static["listeners"], 0)
	if err := askAt(static["clusters"], args[1]); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(config)
}

// setPorts sets every port_value below v.
func setPorts(v any, port int) {
	switch v := v.(type) {
	case []any:
		for _, below := range v {
			setPorts(below, port)
		}
	case map[string]any:
		for name, below := range v {
			if name == "port_value" {
				v[name] = port
			}
			setPorts(below, port)
		}
	}
}

// askAt gives the cluster of the control plane another address.
func askAt(clusters any, address string) error {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	for _, c := range clusters.([]any) {
		c := c.(map[string]any)
		if c["name"] != "xds-grpc" {
			continue
		}
		socket := map[string]any{"socket_address": map[string]any{"address": host, "port_value": port}}
		endpoint := map[string]any{"endpoint": map[string]any{"address": socket}}
		c["load_assignment"] = map[string]any{"cluster_name": "xds-grpc",
			"endpoints": []any{map[string]any{"lb_endpoints": []any{endpoint}}}}
		return nil
	}
	return errors.New("the template has no cluster xds-grpc")
}
