//go:build !linux || 386

package sockio

import "net"

// Conn returns nc.
func Conn(nc net.Conn) net.Conn { return nc }

// PooledConn returns nc.
func PooledConn(nc net.Conn) net.Conn { return nc }
