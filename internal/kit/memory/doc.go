// Package memory bounds what clients can make a process keep: it finds how much memory the process may use, and counts
// what is read and not yet decided against a share of it. It knows no protocol.
package memory
