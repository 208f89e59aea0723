package leases

import (
	"crypto/rand"
	"crypto/sha256"

	"github.com/headgate-rls/headgate/limit"
)

// The names of leases' holders begin with ownerLen bytes for the owner, so
// that all leases of an owner can be ended together.
const (
	ownerLen  = 8
	holderLen = ownerLen + 16
)

// An OwnerID stands for a proxy in the names of its leases' holders. The zero
// OwnerID stands for proxies that send no name.
type OwnerID [ownerLen]byte

// A Proxy is how a proxy that owns leases identifies itself.
type Proxy struct {
	// Peer is the identity in its client certificate, "" without one.
	Peer string
	// Name is the name that it sends, "" if it sends none.
	Name string
}

// ID returns what the names of the proxy's holders begin with.
func (p Proxy) ID() (id OwnerID) {
	if p.Name == "" {
		return id
	}
	text := p.Name
	if p.Peer != "" {
		text = string(limit.AppendPart(limit.AppendPart(nil, p.Peer), p.Name))
	}
	sum := sha256.Sum256([]byte(text))
	copy(id[:], sum[:])
	return id
}

// Holder returns the name of the holder of a call's leases. It is random if id
// is empty; else calls of a domain with the same id and proxy get the same name.
func Holder(domain, id string, p Proxy) string {
	var b [holderLen]byte
	owner := p.ID()
	copy(b[:], owner[:])
	if id == "" {
		_, _ = rand.Read(b[ownerLen:])
		return string(b[:])
	}
	// The domain keeps two filters that send one id apart.
	sum := sha256.Sum256(limit.AppendPart(limit.AppendPart(nil, domain), id))
	copy(b[ownerLen:], sum[:])
	return string(b[:])
}

// ownerOf returns the owner in a holder's name, or zero.
func ownerOf(holder string) (id OwnerID) {
	if len(holder) == holderLen {
		copy(id[:], holder)
	}
	return id
}
