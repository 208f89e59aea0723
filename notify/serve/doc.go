// Package serve has what the programs notify-gateway and notify-sender share: their start, their listeners, waiting for
// what they need, readiness. It also has all that notify-sender runs.
package serve
