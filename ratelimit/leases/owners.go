package leases

import (
	"crypto/rand"
	"crypto/sha256"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// Leases of a proxy that is gone end before they expire. Each replica reports to the registry which owners it has heard
// from (report), reads what all replicas have reported (merge), and so finds the owners that no replica has heard from
// for the grace time (gone).
//
// Only durations of this process's own clock decide who is gone: each report changes a row of the table, and an owner
// counts as silent for as long as this process has seen its row unchanged.

// maxOwners bounds the known owners. Leases of other owners are left to expire.
const maxOwners = backends.MaxRows

// ownersTable has a row for each owner and a row for each replica.
const (
	ownersTable = "owners"
	ownerRow    = "o"
	replicaRow  = "r"
)

type owner struct {
	Proxy
	id OwnerID

	// What this process has heard.
	streams int  // open access logs that have reported leases of the owner
	heard   bool // since the last report

	// What the table says.
	watched bool // an access log has reported leases of the owner, here or elsewhere
	listed  bool
	row     string    // its value
	by      string    // the replica that reported last
	changed time.Time // when row was found to have changed
}

func (o *owner) present() bool { return o.heard || o.streams > 0 }

// owners are the known owners of leases.
type owners struct {
	mu      sync.Mutex
	byProxy map[Proxy]*owner
	byID    map[OwnerID]*owner

	replicas map[string]*silence // the rows of replicas
	steady   time.Time           // since when the table could be read without a gap
	last     time.Time           // when it was read last
	reports  uint64
}

// A silence says since when a row has not changed.
type silence struct {
	row     string
	changed time.Time
}

// heardFrom notes that a proxy has sent a call.
func (s *owners) heardFrom(p Proxy) {
	s.mu.Lock()
	if o := s.byProxy[p]; o != nil {
		o.heard = true
	}
	s.mu.Unlock()
}

// addGrant notes that a proxy got a lease.
func (s *owners) addGrant(p Proxy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.byProxy[p]
	if o == nil {
		if o = s.add(p.ID(), Proxy{strings.Clone(p.Peer), strings.Clone(p.Name)}); o == nil {
			return
		}
	}
	o.heard = true
}

// addReturn notes that an owner has sent a lease back. The owner may be unknown
// so far: a lease says no more than the ID.
func (s *owners) addReturn(id OwnerID) {
	if id == (OwnerID{}) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.findOrAdd(id); o != nil {
		o.heard = true
	}
}

// watch counts an open access log that has reported a lease of the owner. It
// returns false if there is no room for the owner.
func (s *owners) watch(id OwnerID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.findOrAdd(id)
	if o == nil {
		return false
	}
	o.streams++
	o.watched, o.heard = true, true
	return true
}

// unwatch counts the end of an access log that watch counted. The owner is
// known: none is removed that has an open access log.
func (s *owners) unwatch(id OwnerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.byID[id]; o != nil {
		o.streams--
		o.heard = true
	}
}

// findOrAdd returns the owner, nil if it is unknown and there is no room.
func (s *owners) findOrAdd(id OwnerID) *owner {
	if o := s.byID[id]; o != nil {
		return o
	}
	return s.add(id, Proxy{})
}

func (s *owners) add(id OwnerID, p Proxy) *owner {
	o := s.byID[id]
	if o == nil {
		if len(s.byID) >= maxOwners && !s.makeRoom() {
			return nil
		}
		if s.byID == nil {
			s.byID, s.byProxy = map[OwnerID]*owner{}, map[Proxy]*owner{}
		}
		o = &owner{id: id}
		s.byID[id] = o
	}
	if p != (Proxy{}) && o.Proxy != p {
		o.Proxy = p
		s.byProxy[p] = o
	}
	return o
}

// makeRoom removes an owner that is not in the table. Other replicas would take
// the silence of an owner in the table for its end.
func (s *owners) makeRoom() bool {
	const tries = 64
	n := 0
	for _, o := range s.byID {
		if !o.listed && o.streams == 0 {
			s.remove(o)
			return true
		}
		if n++; n == tries {
			break
		}
	}
	return false
}

func (s *owners) remove(o *owner) {
	delete(s.byID, o.id)
	delete(s.byProxy, o.Proxy)
}

// report returns the rows of all owners that were heard from since the last
// report, and of this replica. The caller must then call reported.
func (s *owners) report(replica string) (rows []backends.Row, heard []OwnerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports++
	seq := strconv.FormatUint(s.reports, 36)
	for id, o := range s.byID {
		if !o.present() {
			continue
		}
		if o.heard {
			heard = append(heard, id)
		}
		o.heard = false
		rows = append(rows, backends.Row{Key: ownerRow + string(id[:]), Value: o.encode(replica, seq)})
	}
	// Last, so that it says that all rows above are there.
	return append(rows, backends.Row{Key: replicaRow + replica, Value: seq}), heard
}

// reported takes the result of a report. The owners of a failed report are in the next one. If the table had no room
// for all rows, only the next merge shows which rows are there.
func (s *owners) reported(heard []OwnerID, failed, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range heard {
		if o := s.byID[id]; o != nil {
			o.listed = o.listed || all
			o.heard = o.heard || failed
		}
	}
}

// A row's value has these fields, in this order, and the name last, which may contain anything.
const ownerFields = 5

func (o *owner) encode(replica, seq string) string {
	watched := ""
	if o.watched {
		watched = "w"
	}
	return strings.Join([]string{seq, replica, watched, o.Peer, o.Name}, "\x00")
}

// decode takes over a row's value that was read at now, and returns the proxy in it.
func (o *owner) decode(value string, now time.Time) (p Proxy) {
	if o.row != value { // a sign of life, also if a later version writes the row in another form
		o.row, o.changed = value, now
	}
	f := strings.SplitN(value, "\x00", ownerFields)
	if backends.LaterRow(value) || len(f) < ownerFields {
		return p
	}
	o.listed, o.by, o.watched = true, f[1], o.watched || f[2] != ""
	return Proxy{f[3], f[4]}
}

// merge takes over the table, as it was between asked and now. An owner that is no longer in it was ended by another
// replica, unless this process has heard from it since.
func (s *owners) merge(rows []backends.Row, asked, now time.Time, every time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.IsZero() || asked.Sub(s.last) > 2*every+every/2 {
		s.steady = now // this process has missed reports
	}
	s.last = now
	listed := make(map[OwnerID]string, len(rows))
	replicas := make(map[string]*silence)
	for _, r := range rows {
		if name, ok := strings.CutPrefix(r.Key, replicaRow); ok {
			known := s.replicas[name]
			if known == nil || known.row != r.Value {
				known = &silence{r.Value, now}
			}
			replicas[name] = known
		} else if key, ok := strings.CutPrefix(r.Key, ownerRow); ok && len(key) == ownerLen {
			listed[OwnerID([]byte(key))] = r.Value
		}
	}
	s.replicas = replicas
	for id, o := range s.byID {
		if _, o.listed = listed[id]; !o.listed && !o.present() {
			s.remove(o)
		}
	}
	for id, value := range listed {
		s.mergeOwner(id, value, now)
	}
}

func (s *owners) mergeOwner(id OwnerID, value string, now time.Time) {
	if o := s.findOrAdd(id); o != nil {
		if p := o.decode(value, now); p.Name != "" {
			s.add(id, p)
		}
	}
}

// restartSilences starts the grace time of all owners anew, because the table could not be read or written: whatever
// kept this process from it may have kept others from reporting.
func (s *owners) restartSilences() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Time{}
}

// gone returns the owners that no replica has heard from for the grace time, if an access log of theirs was connected
// once: a proxy without one may be silent during a long request. If the replica that heard from an owner last is silent
// as well, it may be cut off from the store, so the owner gets twice the grace.
func (s *owners) gone(asked time.Time, me string, grace time.Duration) (list []*owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	silent := func(since time.Time) time.Duration {
		if s.steady.After(since) {
			since = s.steady
		}
		return asked.Sub(since)
	}
	for _, o := range s.byID {
		if !o.listed || !o.watched || o.present() {
			continue
		}
		wait := grace
		if r := s.replicas[o.by]; o.by != me && (r == nil || silent(r.changed) >= grace) {
			wait = 2 * grace
		}
		if silent(o.changed) >= wait {
			list = append(list, &owner{Proxy: o.Proxy, id: o.id, row: o.row})
		}
	}
	return list
}

// stillGone reports whether no replica has heard from an owner since gone returned it.
func (s *owners) stillGone(gone *owner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.byID[gone.id]
	return o != nil && !o.present() && o.row == gone.row
}

// removeGone removes an owner whose leases are ended.
func (s *owners) removeGone(gone *owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.byID[gone.id]; o != nil && !o.present() {
		s.remove(o)
	}
}

func (s *owners) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byID)
}

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
