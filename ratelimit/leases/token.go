package leases

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// Bounds of a token.
const (
	MaxLen  = 4096 // characters
	MaxHeld = 16   // limits that one request is in flight under
)

const (
	version = 2
	macLen  = 16 // of HMAC-SHA-256's 32 bytes
)

// A Lease is what a request has while it is in flight.
type Lease struct {
	// Holder is its name under each of the keys (limit.Op.Holder).
	Holder string
	// Domain is that of the request, for metrics.
	Domain string
	// Replica names the process that granted it, for logs.
	Replica uint32
	// Until is when it expires unless it is renewed, and Granted when it was granted.
	Until, Granted limit.Instant
	// Held are the leases that the token stands for, and Reserved the reservations: at most
	// MaxHeld together.
	Held     []Held
	Reserved []Reservation
}

// A Held is one unit in flight.
type Held struct {
	Key limit.Key
	// TTL is the life of the lease, in whole milliseconds.
	TTL time.Duration
	// Rule is the rule's path, for metrics.
	Rule string
}

// A Signer makes and reads tokens. It may be used concurrently.
type Signer struct {
	prefer  sync.Mutex
	secrets atomic.Pointer[[]*secret] // the first one signs
}

// maxSecrets bounds the secrets that a signer reads tokens by.
const maxSecrets = 3

type secret struct {
	key  [sha256.Size]byte
	macs sync.Pool
}

func newSecret(text []byte) *secret {
	s := &secret{key: sha256.Sum256(append([]byte("headgate lease token\x00"), text...))}
	s.macs.New = func() any { return hmac.New(sha256.New, s.key[:]) }
	return s
}

// works pools the memory in which tokens are made and read. Results are copies.
var works = sync.Pool{New: func() any { return &work{body: make([]byte, 0, 512), text: make([]byte, 0, 512)} }}

type work struct{ body, text []byte }

// NewSigner returns a signer with a secret. Replicas that end each other's
// leases need the same one.
func NewSigner(text []byte) *Signer {
	s := new(Signer)
	s.secrets.Store(&[]*secret{newSecret(text)})
	return s
}

// Prefer makes a secret the one that signs. Tokens that were signed with the
// two before it can still be read.
func (s *Signer) Prefer(text []byte) {
	s.prefer.Lock()
	defer s.prefer.Unlock()
	list := []*secret{newSecret(text)}
	for _, old := range *s.secrets.Load() {
		if old.key != list[0].key && len(list) < maxSecrets {
			list = append(list, old)
		}
	}
	s.secrets.Store(&list)
}

// Sign returns l's token. It fails for a lease that holds too much.
func (s *Signer) Sign(l *Lease) (string, error) {
	if n := len(l.Held) + len(l.Reserved); n > MaxHeld {
		return "", fmt.Errorf("the request has leases under %d limits, at most %d are allowed", n, MaxHeld)
	}
	w := works.Get().(*work)
	defer works.Put(w)
	b := append(w.body[:0], version)
	b = binary.BigEndian.AppendUint32(b, l.Replica)
	b = binary.AppendUvarint(b, uint64(l.Until))
	b = binary.AppendUvarint(b, uint64(l.Granted))
	b = appendText(b, l.Holder)
	b = appendText(b, l.Domain)
	b = append(b, byte(len(l.Held)))
	for i := range l.Held {
		h := &l.Held[i]
		b = appendHeld(b, &h.Key, h.Rule, h.TTL)
	}
	for i := range l.Reserved {
		r := &l.Reserved[i]
		b = appendHeld(b, &r.Key, r.Rule, r.TTL)
		b = binary.AppendUvarint(b, uint64(r.Units))
		b = appendText(b, r.Note)
	}
	b = (*s.secrets.Load())[0].appendMAC(b, b)
	if n := base64.RawURLEncoding.EncodedLen(len(b)); n > MaxLen {
		return "", fmt.Errorf("the lease token has %d characters, at most %d are allowed", n, MaxLen)
	}
	w.text = base64.RawURLEncoding.AppendEncode(w.text[:0], b)
	return string(w.text), nil
}

// ErrInvalid is the error for a token that no signer with this secret made.
var ErrInvalid = errors.New("unknown lease token")

// errLater is the error for a token of a later version, or that says so: nothing of it can be verified.
var errLater = fmt.Errorf("%w: %w", ErrInvalid, limit.ErrLater)

// Parse reads a token into l, reusing its memory.
func (s *Signer) Parse(token string, l *Lease) error {
	if len(token) > MaxLen {
		return ErrInvalid
	}
	w := works.Get().(*work)
	defer works.Put(w)
	w.text = append(w.text[:0], token...)
	b, err := base64.RawURLEncoding.AppendDecode(w.body[:0], w.text)
	switch {
	case err != nil || len(b) < 1+4+macLen || b[0] < version:
		return ErrInvalid
	case b[0] > version:
		return errLater
	}
	body, mac := b[:len(b)-macLen], b[len(b)-macLen:]
	if !s.signed(body, mac, w.text[:0]) {
		return ErrInvalid
	}
	r := reader{rest: string(body[5:])}
	*l = Lease{Replica: binary.BigEndian.Uint32(body[1:]), Held: l.Held[:0], Reserved: l.Reserved[:0]}
	l.Until, l.Granted, l.Holder, l.Domain = limit.Instant(r.number()), limit.Instant(r.number()), r.text(), r.text()
	for range min(r.count(), MaxHeld) {
		var h Held
		h.Key, h.Rule, h.TTL = r.held()
		l.Held = append(l.Held, h)
	}
	for r.rest != "" && len(l.Held)+len(l.Reserved) < MaxHeld {
		var one Reservation
		one.Key, one.Rule, one.TTL = r.held()
		one.Units, one.Note = int64(r.number()), r.text()
		l.Reserved = append(l.Reserved, one)
	}
	if r.failed || r.rest != "" {
		return ErrInvalid
	}
	return nil
}

// signed reports whether one of the secrets made mac. It overwrites the capacity of space.
func (s *Signer) signed(body, mac, space []byte) bool {
	for _, secret := range *s.secrets.Load() {
		if hmac.Equal(mac, secret.appendMAC(space, body)) {
			return true
		}
	}
	return false
}

func (s *secret) appendMAC(dst, body []byte) []byte {
	h := s.macs.Get().(hash.Hash)
	defer s.macs.Put(h)
	h.Reset()
	h.Write(body)
	return h.Sum(dst)[:len(dst)+macLen]
}

// appendHeld appends what leases and reservations have in common.
func appendHeld(b []byte, key *limit.Key, rule string, ttl time.Duration) []byte {
	b = appendText(appendText(b, key.Group), key.Limit)
	return binary.AppendUvarint(appendText(b, rule), uint64(ttl.Milliseconds()))
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// A reader takes a token's body apart.
type reader struct {
	rest   string
	failed bool
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint([]byte(r.rest[:min(len(r.rest), binary.MaxVarintLen64)]))
	if size <= 0 {
		r.failed, r.rest = true, ""
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// count reads a number in one byte.
func (r *reader) count() int {
	if r.rest == "" {
		r.failed = true
		return 0
	}
	n := int(r.rest[0])
	r.rest = r.rest[1:]
	return n
}

func (r *reader) held() (key limit.Key, rule string, ttl time.Duration) {
	key, rule = limit.Key{Group: r.text(), Limit: r.text()}, r.text()
	return key, rule, time.Duration(r.number()) * time.Millisecond
}

func (r *reader) text() string {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.failed, r.rest = true, ""
		return ""
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}
