package ratelimit

import (
	"crypto/sha256"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// Leases of a proxy that is gone end before they expire. A proxy is an owner:
// the name that it sends, and the certificate that it sends it with. Each
// replica reports in the registry which owners it has heard of (report), reads
// what all have reported (merge), and so finds who has not been heard of for
// the grace time (gone). What then happens is in places.go.
//
// No clock but this process's own, and of that only durations, decides who is
// gone: a row of the table changes with each report, and counts as silent for
// as long as this process has seen it unchanged.

// An OwnerID stands for an owner in the names of its leases' holders.
type OwnerID [ownerLen]byte

// maxOwners bounds the owners that are known; leases of others are left to
// expire.
const maxOwners = backends.MaxRows

// ownersTable has a row for each owner, and one for each replica.
const (
	ownersTable = "owners"
	ownerRow    = "o"
	replicaRow  = "r"
)

// An ownerName is what an owner is known by: the identity in its certificate,
// "" without one, and the name that it sends.
type ownerName struct{ peer, name string }

// id is what the names of the owner's holders begin with.
func (n ownerName) id() (id OwnerID) {
	text := n.name
	if n.peer != "" {
		text = string(limit.AppendPart(limit.AppendPart(nil, n.peer), n.name))
	}
	sum := sha256.Sum256([]byte(text))
	copy(id[:], sum[:])
	return id
}

type owner struct {
	ownerName
	id OwnerID

	// What this process has heard.
	streams int  // access logs that are open and have brought leases of its
	heard   bool // since the last report

	// What the table says.
	watched bool // an access log has brought leases of its, here or elsewhere
	listed  bool
	row     string    // its value
	by      string    // the replica that reported last
	changed time.Time // when row was found to have changed
}

func (o *owner) present() bool { return o.heard || o.streams > 0 }

// owners are those that have leases, as far as they are known.
type owners struct {
	mu     sync.Mutex
	byName map[ownerName]*owner
	byID   map[OwnerID]*owner

	replicas map[string]*silence // what other replicas report of themselves
	steady   time.Time           // since when the table could be read all the time
	last     time.Time           // when it was read last
	reports  uint64
}

// A silence is since when a row has not changed.
type silence struct {
	row     string
	changed time.Time
}

// heardFrom notes that an owner has asked for something.
func (s *owners) heardFrom(name ownerName) {
	s.mu.Lock()
	if o := s.byName[name]; o != nil {
		o.heard = true
	}
	s.mu.Unlock()
}

// granted notes that an owner got a lease.
func (s *owners) granted(name ownerName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.byName[name]
	if o == nil {
		if o = s.add(name.id(), ownerName{strings.Clone(name.peer), strings.Clone(name.name)}); o == nil {
			return
		}
	}
	o.heard = true
}

// brought notes that an owner brought a lease of its back. It may not be known
// yet: a lease says no more than the ID.
func (s *owners) brought(id OwnerID) {
	if id == (OwnerID{}) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.find(id); o != nil {
		o.heard = true
	}
}

// watch counts an access log that has brought a lease of the owner's, unless there
// is no room for the owner.
func (s *owners) watch(id OwnerID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.find(id)
	if o == nil {
		return false
	}
	o.streams++
	o.watched, o.heard = true, true
	return true
}

// unwatch counts the end of an access log that was counted. Its owner is there:
// none is dropped that has one.
func (s *owners) unwatch(id OwnerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.byID[id]; o != nil {
		o.streams--
		o.heard = true
	}
}

// find returns the owner, made if it is not known and there is room.
func (s *owners) find(id OwnerID) *owner {
	if o := s.byID[id]; o != nil {
		return o
	}
	return s.add(id, ownerName{})
}

func (s *owners) add(id OwnerID, name ownerName) *owner {
	o := s.byID[id]
	if o == nil {
		if len(s.byID) >= maxOwners && !s.makeRoom() {
			return nil
		}
		if s.byID == nil {
			s.byID, s.byName = map[OwnerID]*owner{}, map[ownerName]*owner{}
		}
		o = &owner{id: id}
		s.byID[id] = o
	}
	if name != (ownerName{}) && o.ownerName != name {
		o.ownerName = name
		s.byName[name] = o
	}
	return o
}

// makeRoom drops an owner of which the table knows nothing: others would take
// the silence of one that is in the table for its end.
func (s *owners) makeRoom() bool {
	const tries = 64
	n := 0
	for _, o := range s.byID {
		if !o.listed && o.streams == 0 {
			s.drop(o)
			return true
		}
		if n++; n == tries {
			break
		}
	}
	return false
}

func (s *owners) drop(o *owner) {
	delete(s.byID, o.id)
	delete(s.byName, o.ownerName)
}

// report returns the rows that tell of everybody who was heard of since the
// last report, and of this replica. Then reported must be called.
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
	// Last, so that it says that all of the above is there.
	return append(rows, backends.Row{Key: replicaRow + replica, Value: seq}), heard
}

// reported says how a report ended: if it failed, its owners are in the next
// one. Of a table that had no room for all, only the next look tells whose rows
// are there.
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

// A row's value has these fields, in this order, and the name last, which may
// have anything in it.
const ownerFields = 5

func (o *owner) encode(replica, seq string) string {
	watched := ""
	if o.watched {
		watched = "w"
	}
	return strings.Join([]string{seq, replica, watched, o.peer, o.name}, "\x00")
}

// read takes over what a row says, found at now.
func (o *owner) read(value string, now time.Time) (name ownerName) {
	f := strings.SplitN(value, "\x00", ownerFields)
	if len(f) < ownerFields {
		return name
	}
	if o.row != value {
		o.row, o.changed = value, now
	}
	o.listed, o.by, o.watched = true, f[1], o.watched || f[2] != ""
	return ownerName{f[3], f[4]}
}

// merge takes over the table, as it was between asked and now. Another replica
// found an owner gone that is not in it any more, unless we have heard of it
// since.
func (s *owners) merge(rows []backends.Row, asked, now time.Time, every time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.IsZero() || asked.Sub(s.last) > 2*every+every/2 {
		s.steady = now // whatever happened meanwhile was not seen
	}
	s.last = now
	listed := make(map[OwnerID]string, len(rows))
	replicas := make(map[string]*silence)
	for _, r := range rows {
		if name, ok := strings.CutPrefix(r.Key, replicaRow); ok {
			was := s.replicas[name]
			if was == nil || was.row != r.Value {
				was = &silence{r.Value, now}
			}
			replicas[name] = was
		} else if key, ok := strings.CutPrefix(r.Key, ownerRow); ok && len(key) == ownerLen {
			listed[OwnerID([]byte(key))] = r.Value
		}
	}
	s.replicas = replicas
	for id, o := range s.byID {
		if _, o.listed = listed[id]; !o.listed && !o.present() {
			s.drop(o)
		}
	}
	for id, value := range listed {
		s.mergeOwner(id, value, now)
	}
}

// missed says that the table could not be read or written: who was silent may
// have been kept from reporting, too.
func (s *owners) missed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Time{}
}

func (s *owners) mergeOwner(id OwnerID, value string, now time.Time) {
	if o := s.find(id); o != nil {
		if name := o.read(value, now); name.name != "" {
			s.add(id, name)
		}
	}
}

// gone returns the owners that nobody has heard of for the grace time, though
// an access log of theirs was connected once: a proxy without one may be
// silent while a request takes long. If the replica that heard of an owner
// last is silent as well, it may be cut off from the store, so that takes
// twice the grace.
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
			list = append(list, &owner{ownerName: o.ownerName, id: o.id, row: o.row})
		}
	}
	return list
}

// still says whether an owner that gone returned has not been heard of since.
func (s *owners) still(gone *owner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.byID[gone.id]
	return o != nil && !o.present() && o.row == gone.row
}

// forget drops an owner whose leases are ended.
func (s *owners) forget(gone *owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.byID[gone.id]; o != nil && !o.present() {
		s.drop(o)
	}
}

func (s *owners) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byID)
}
