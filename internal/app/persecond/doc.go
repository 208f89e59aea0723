// Package persecond keeps the limits per second of a server in a store of their own, as envoyproxy/ratelimit can. What
// programs import has one store: this is for `headgate serve` alone.
package persecond
