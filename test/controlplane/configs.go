package controlplane

import (
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
)

// Config returns the rules of a domain.
func Config(domain string, list ...*rlsconf.RateLimitDescriptor) *rlsconf.RateLimitConfig {
	return &rlsconf.RateLimitConfig{Name: domain, Domain: domain, Descriptors: list}
}

// Rule returns a descriptor that admits that many requests per unit.
func Rule(key, value string, most uint32, unit rlsconf.RateLimitUnit) *rlsconf.RateLimitDescriptor {
	return &rlsconf.RateLimitDescriptor{Key: key, Value: value,
		RateLimit: &rlsconf.RateLimitPolicy{RequestsPerUnit: most, Unit: unit}}
}

// Node returns a descriptor that only leads to those below it.
func Node(key, value string, below ...*rlsconf.RateLimitDescriptor) *rlsconf.RateLimitDescriptor {
	return &rlsconf.RateLimitDescriptor{Key: key, Value: value, Descriptors: below}
}
