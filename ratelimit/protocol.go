package ratelimit

import (
	"time"

	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// A descriptor whose first entry has the key OpKey does something to the lease
// whose token its second entry, LeaseEntry, has: OpRelease ends it, leases.Renew
// moves its end away. See [leases.Action] for more.
const (
	OpKey      = "headgate.op"
	OpRelease  = string(leases.Release)
	LeaseEntry = "lease"
)

// Names of request metadata (gRPC headers) that say more about a call.
const (
	// MetadataID is the same when the call is repeated: a repeated call gets
	// the lease that it got before, and is charged once.
	MetadataID = "x-headgate-id"
	// MetadataOwner names the proxy, for leases to go when it does.
	MetadataOwner = "x-headgate-owner"
	// MetadataLeaseKey is the name under which the token goes into
	// dynamic_metadata; without it that is DefaultLeaseKey.
	MetadataLeaseKey = "x-headgate-lease-key"
	// MetadataRequestID is the caller's name for the request, for the log.
	MetadataRequestID = "x-request-id"
)

// DefaultLeaseKey is where Envoy finds the token in a response's dynamic_metadata.
const DefaultLeaseKey = "lease"

// DefaultTimeout bounds a call to the backend whose caller brings no deadline.
const DefaultTimeout = 500 * time.Millisecond

// DelayHeader tells Envoy's fault filter how long to keep a request waiting,
// in milliseconds.
const DelayHeader = "x-envoy-fault-delay-request"
