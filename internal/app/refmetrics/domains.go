package refmetrics

import (
	"strings"
	"sync"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// Bounds of domains that no rules have: callers choose their names.
const (
	maxUnknownDomains = 100
	maxUnknownDomain  = 256 // bytes of a name
	otherDomains      = "(other)"
)

// domains count descriptors by a domain that no rules have.
type domains struct {
	mu    sync.Mutex
	count map[string]uint64
}

func (d *domains) add(domain string) {
	name := statName.Replace(strings.ToValidUTF8(domain[:min(len(domain), maxUnknownDomain)], "_"))
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count == nil {
		d.count = map[string]uint64{}
	}
	if _, known := d.count[name]; !known && len(d.count) >= maxUnknownDomains {
		name = otherDomains
	}
	d.count[strings.Clone(name)]++
}

func (d *domains) each(emit metrics.Emit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, n := range d.count {
		emit([]string{name}, float64(n), nil)
	}
}
