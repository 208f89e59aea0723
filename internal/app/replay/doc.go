// Package replay decides requests of the past again, by new rules and by old ones, in virtual time. It reads captures
// of
// headgate and access logs of Envoy in JSON, and reports whom a change of rules would refuse.
package replay
