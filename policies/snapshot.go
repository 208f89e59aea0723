package policies

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"sync/atomic"

	"github.com/headgate-rls/headgate/limit"
)

// A Snapshot has all policies at one moment. It is immutable. The zero Snapshot has none.
//
// Keys and figures lie in arrays of bytes without pointers, which the garbage collector need not
// look into, in shards by the keys' hash. A change copies the shards that it concerns, and shares
// the others with the snapshot before.
type Snapshot struct {
	shards [numShards]*shard
	count  int
	bytes  int64
	number uint64
	// unusable is how many policies are not in force, because the store of the counters cannot keep their limit.
	unusable int
	keeps    Keeps
}

// made is how many snapshots were made.
var made atomic.Uint64

const numShards = 1024

// seed is drawn by chance: clients choose keys and must not choose places.
var seed = maphash.MakeSeed()

// A shard has the policies of some keys.
type shard struct {
	// index has the place in data, plus one, of each policy; 0 is free. Its length is a power of
	// two, more than the number of policies.
	index    []uint32
	data     []byte
	count    int
	unusable int
}

// A Change is a policy that was changed or removed since another moment.
type Change struct {
	Key     string
	Removed bool
	Figures // unless Removed
}

// Number identifies a snapshot: no two have the same one, and one that is nil or zero has 0.
func (s *Snapshot) Number() uint64 {
	if s == nil {
		return 0
	}
	return s.number
}

// Len returns how many policies there are.
func (s *Snapshot) Len() int {
	if s == nil {
		return 0
	}
	return s.count
}

// Bytes returns how much memory the policies take, nearly.
func (s *Snapshot) Bytes() int64 {
	if s == nil {
		return 0
	}
	return s.bytes
}

// Unusable returns how many policies are not in force, because the store of the counters cannot keep their limit. The
// rules' own limits hold instead.
func (s *Snapshot) Unusable() int {
	if s == nil {
		return 0
	}
	return s.unusable
}

// UnusableOne returns the key of one of the policies that are not in force, and why; nothing if all are.
func (s *Snapshot) UnusableOne() (key string, why error) {
	for _, sh := range s.shards {
		if sh == nil || sh.unusable == 0 {
			continue
		}
		sh.all(func(k []byte, f Figures, _ []byte) {
			if err := s.keeps.Check(f); err != nil && why == nil {
				key, why = string(k), err
			}
		})
		return key, why
	}
	return "", nil
}

// Find returns the figures of the policy of a key.
func (s *Snapshot) Find(key []byte) (f Figures, ok bool) {
	if s == nil || s.count == 0 {
		return f, false
	}
	h := maphash.Bytes(seed, key)
	sh := s.shards[h%numShards]
	if sh == nil {
		return f, false
	}
	at, ok := sh.find(h, key)
	if !ok {
		return f, false
	}
	_, f, _ = entryAt(sh.data[at:])
	return f, true
}

// find returns the place of the policy of a key, whose hash is h.
func (sh *shard) find(h uint64, key []byte) (at int, ok bool) {
	mask := uint64(len(sh.index) - 1)
	for i := h / numShards & mask; sh.index[i] != 0; i = (i + 1) & mask {
		at := int(sh.index[i] - 1)
		if n := int(sh.data[at]); n == len(key) && string(sh.data[at+1:at+1+n]) == string(key) {
			return at, true
		}
	}
	return 0, false
}

// appendEntry appends a policy: the length of its key, the key, the algorithm and its figures.
func appendEntry(data []byte, key string, f *Figures) []byte {
	data = append(data, byte(len(key)))
	data = append(data, key...)
	data = append(data, byte(f.Algorithm))
	for _, n := range [...]uint64{uint64(f.Capacity), uint64(f.Refill), uint64(f.Window)} {
		data = binary.AppendUvarint(data, n)
	}
	return data
}

// entryAt reads the policy that data begins with, and returns its size.
func entryAt(data []byte) (key []byte, f Figures, size int) {
	size = 1 + int(data[0])
	key = data[1:size]
	f.Algorithm = limit.Algorithm(data[size])
	size++
	var n [3]uint64
	for i := range n {
		v, used := binary.Uvarint(data[size:])
		n[i], size = v, size+used
	}
	f.Capacity, f.Refill, f.Window = int64(n[0]), Amount(n[1]), Amount(n[2])
	return key, f, size
}

func (sh *shard) all(each func(key []byte, f Figures, encoded []byte)) {
	for at := 0; at < len(sh.data); {
		key, f, size := entryAt(sh.data[at:])
		each(key, f, sh.data[at:at+size])
		at += size
	}
}

// With returns a snapshot with the changes, of which the last one of a key counts. s may be nil.
// Keys must be no longer than MaxKey.
func (s *Snapshot) With(changes []Change) *Snapshot {
	next := &Snapshot{}
	if s != nil {
		*next = *s
	}
	next.number = made.Add(1)
	var byShard [numShards][]*Change
	for i := range changes {
		n := maphash.String(seed, changes[i].Key) % numShards
		byShard[n] = append(byShard[n], &changes[i])
	}
	for n, concerned := range byShard {
		if len(concerned) > 0 {
			next.replace(n, next.shards[n].with(concerned, next.keeps))
		}
	}
	return next
}

func (s *Snapshot) replace(n int, sh *shard) {
	s.add(s.shards[n], -1)
	s.shards[n] = sh
	s.add(sh, 1)
}

// add adds the figures of a shard, or takes them away.
func (s *Snapshot) add(sh *shard, sign int) {
	if sh != nil {
		s.count += sign * sh.count
		s.bytes += int64(sign) * sh.size()
		s.unusable += sign * sh.unusable
	}
}

func (sh *shard) size() int64 {
	return int64(cap(sh.data)) + 4*int64(cap(sh.index)) + 64
}

// with returns a shard with the changes, nil if it has no policies.
func (sh *shard) with(changes []*Change, keeps Keeps) *shard {
	last := make(map[string]*Change, len(changes))
	for _, c := range changes {
		last[c.Key] = c
	}
	var data []byte
	if sh != nil {
		data = make([]byte, 0, len(sh.data)+64)
		sh.all(func(key []byte, _ Figures, encoded []byte) {
			if last[string(key)] == nil {
				data = append(data, encoded...)
			}
		})
	}
	for key, c := range last {
		if !c.Removed {
			data = appendEntry(data, key, &c.Figures)
		}
	}
	return newShard(data, keeps)
}

// newShard makes the index of encoded policies, which all have different keys.
func newShard(data []byte, keeps Keeps) *shard {
	if len(data) == 0 {
		return nil
	}
	sh := &shard{data: slices.Clip(append(make([]byte, 0, len(data)), data...))}
	sh.all(func(_ []byte, f Figures, _ []byte) {
		sh.count++
		if keeps.Check(f) != nil {
			sh.unusable++
		}
	})
	size := 2
	for size < sh.count*3/2+1 {
		size *= 2
	}
	sh.index = make([]uint32, size)
	mask, at := uint64(size-1), uint32(0)
	sh.all(func(key []byte, _ Figures, encoded []byte) {
		i := maphash.Bytes(seed, key) / numShards & mask
		for sh.index[i] != 0 {
			i = (i + 1) & mask
		}
		sh.index[i] = at + 1
		at += uint32(len(encoded))
	})
	return sh
}

// A Builder collects policies for a snapshot. The zero Builder is empty.
type Builder struct {
	// Keeps is as in [Set].
	Keeps Keeps

	data [numShards][]byte
}

// Add adds a policy. Each key must be added once, and be no longer than MaxKey.
func (b *Builder) Add(key string, f Figures) {
	n := maphash.String(seed, key) % numShards
	b.data[n] = appendEntry(b.data[n], key, &f)
}

// Snapshot returns a snapshot of what was added. The Builder is empty then.
func (b *Builder) Snapshot() *Snapshot {
	s := &Snapshot{number: made.Add(1), keeps: b.Keeps}
	for n := range b.data {
		s.replace(n, newShard(b.data[n], b.Keeps))
		b.data[n] = nil
	}
	return s
}
