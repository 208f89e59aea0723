//go:build !linux

package sockio

import "net"

// Conn returns nc.
func Conn(nc net.Conn) net.Conn { return nc }
