package certs

import (
	"cmp"
	"crypto/x509"
	"maps"
	"slices"
	"sort"
	"sync"
	"time"
)

// A Use is what a file of certificates is for.
type Use string

// Uses of files.
const (
	OfListener Use = "listener" // shown to clients, or to verify them
	OfClient   Use = "client"   // shown to stores and control planes, or to verify them
)

// A Validity says when what was last read from a file is valid. Of authorities it is from when the first of them is, to
// when the last of them is.
type Validity struct {
	Use    Use
	File   string
	Begins time.Time
	Ends   time.Time
}

// Problem says why certificates cannot be used at a time; "" if they can.
func (v Validity) Problem(now time.Time) string {
	switch {
	case now.After(v.Ends):
		return "expired on " + v.Ends.UTC().Format(time.RFC3339)
	case now.Before(v.Begins):
		return "not valid before " + v.Begins.UTC().Format(time.RFC3339)
	}
	return ""
}

// soon is how long before its end a certificate should have been renewed. Of one with a short life, that is the last
// quarter of it.
const soon = 14 * 24 * time.Hour

// EndsSoon reports whether certificates should have been renewed.
func (v Validity) EndsSoon(now time.Time) bool {
	return v.Ends.Sub(now) < min(soon, v.Ends.Sub(v.Begins)/4)
}

// inUse are the certificates that this process has read, by what they are for and their files. They are the process's:
// stores read their files themselves, deep below who wants to know.
var inUse = struct {
	sync.Mutex
	files map[Validity]Validity // by Use and File
}{files: map[Validity]Validity{}}

// maxFiles bounds inUse.
const maxFiles = 1000

// InUse returns what this process has read last of each file of certificates.
func InUse() []Validity {
	inUse.Lock()
	defer inUse.Unlock()
	list := slices.Collect(maps.Values(inUse.files))
	sort.Slice(list, func(i, j int) bool {
		a, b := &list[i], &list[j]
		return cmp.Or(cmp.Compare(a.Use, b.Use), cmp.Compare(a.File, b.File)) < 0
	})
	return list
}

// Note notes that certificates are in use.
func (v Validity) Note() {
	inUse.Lock()
	defer inUse.Unlock()
	key := Validity{Use: v.Use, File: v.File}
	if _, known := inUse.files[key]; !known && len(inUse.files) >= maxFiles {
		return
	}
	inUse.files[key] = v
}

// validityOf returns when some of a file's certificates are valid.
func validityOf(use Use, file string, list ...*x509.Certificate) Validity {
	v := Validity{Use: use, File: file}
	for _, c := range list {
		if v.Begins.IsZero() || c.NotBefore.Before(v.Begins) {
			v.Begins = c.NotBefore
		}
		if c.NotAfter.After(v.Ends) {
			v.Ends = c.NotAfter
		}
	}
	return v
}
