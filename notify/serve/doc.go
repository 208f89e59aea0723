// Package serve is what the programs notify-gateway and notify-sender run: it puts the parts
// together, waits for what they need, and ends in good order.
package serve
