// Package envoyconf makes the configuration of Envoy that a domain's rules
// need: what the rules have to know of requests, how the ends of requests in
// flight are reported, and how refusals and delays reach the client.
//
// It knows Envoy from 1.36 on, and works around what differs between versions.
// What is written is in envoy.yaml.tmpl; golden files and real Envoys hold it.
package envoyconf
