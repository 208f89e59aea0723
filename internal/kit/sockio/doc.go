// Package sockio reads and writes on sockets with less CPU time than package net.
//
// Package net announces each read and write to Go's scheduler, because a system call may block. A socket of package net
// never does: it returns EAGAIN, and the goroutine waits for the poller. So here nothing is announced. On Linux this
// saves a tenth of the CPU time of a call to headgate; elsewhere connections stay as they are.
//
// # To change it
//
//   - how sockets are read and written: sockio_linux.go; go test ./internal/kit/sockio
//
// # More
//
// What the package does not do: it buffers nothing and knows no protocol.
package sockio
