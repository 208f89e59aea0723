package xds

import (
	"fmt"
	"math/rand/v2"
	"testing"

	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/overlay"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/controlplane"
	"github.com/headgate-rls/headgate/test/random"
)

// randomRoute returns a descriptor at the top of a domain: right, with a warning, or wrong.
func randomRoute(r *rand.Rand) *rlsconf.RateLimitDescriptor {
	key := fmt.Sprint("route", r.IntN(12))
	d := controlplane.Node(key, key)
	for range 1 + r.IntN(3) {
		below := fmt.Sprint("rule", r.IntN(4))
		rule := controlplane.Rule(below, below, uint32(1+r.IntN(9)), hour)
		switch r.IntN(40) {
		case 0:
			rule.RateLimit.Unit = rlsconf.RateLimitUnit_UNKNOWN // which cannot be used
		case 1, 2:
			rule.ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 1}) // which is a warning
		case 3:
			rule.RateLimit.Name = "named"
			rule.RateLimit.Replaces = []*rlsconf.RateLimitReplace{{Name: "nobody"}}
		}
		d.Descriptors = append(d.Descriptors, rule)
	}
	return d
}

// What a client holds after many changes is what a new client makes of the last response.
func TestChangesOfBranches(t *testing.T) {
	r := random.Rand(t, 3)
	layers := []*overlay.Overlay{nil,
		overlay.New([]overlay.Entry{{Domain: "*", Rule: "*route1*", Algorithm: limit.SlidingWindow}})}
	for i := range random.Times(20, 500) {
		s := &state{maxBytes: DefaultMaxMessage, overlay: layers[i%2]}
		routes := map[string][]*rlsconf.RateLimitDescriptor{}
		taken, refused := 0, 0
		for range 40 {
			domain := fmt.Sprint("domain", r.IntN(2))
			list := routes[domain]
			at := r.IntN(len(list) + 1)
			switch n := r.IntN(6); {
			case n < 3 || at == len(list):
				list = append(list[:at:at], append([]*rlsconf.RateLimitDescriptor{randomRoute(r)}, list[at:]...)...)
			case n < 5:
				list = append(list[:at:at], list[at+1:]...)
			default:
				r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			}
			routes[domain] = list
			resources := resourcesOf(t, controlplane.Config("domain0", routes["domain0"]...),
				controlplane.Config("domain1", routes["domain1"]...))
			fresh := (&state{maxBytes: DefaultMaxMessage, overlay: s.overlay}).consider(resources, nil, false)
			o := s.consider(resources, nil, false)
			if got, want := fmt.Sprint(o.problems), fmt.Sprint(fresh.problems); got != want {
				t.Fatalf("problems %s\nwant %s", got, want)
			}
			if len(o.problems) > 0 {
				refused++
				delete(routes, domain)
				continue
			}
			if got, want := fmt.Sprint(o.warnings), fmt.Sprint(fresh.warnings); got != want {
				t.Fatalf("warnings %s\nwant %s", got, want)
			}
			if got, want := dump(t, o.set), dump(t, fresh.set); got != want || o.set.Hash() != fresh.set.Hash() {
				t.Fatalf("%s\nwant\n%s", got, want)
			}
			s.take(o)
			taken++
		}
		if taken < 10 {
			t.Fatalf("%d changes are taken, %d refused", taken, refused)
		}
	}
}

// Of 100 routes one has changed: its 256 rules are decoded and compiled, and no other.
func TestUnchangedBranchesAreNotCompiledAgain(t *testing.T) {
	s := &state{maxBytes: DefaultMaxMessage}
	list := many(t)
	o := s.consider(list, nil, false)
	s.take(o)
	before := map[*descriptors.Rule]bool{}
	for _, r := range o.set.Rules() {
		before[r] = true
	}
	var config rlsconf.RateLimitConfig
	if err := proto.Unmarshal(list[0].raw, &config); err != nil {
		t.Fatal(err)
	}
	config.Descriptors[50].Descriptors[7].RateLimit.RequestsPerUnit++
	o = s.consider(resourcesOf(t, &config), nil, false)
	again := 0
	for _, r := range o.set.Rules() {
		if !before[r] {
			again++
		}
	}
	if again != 256 || len(o.set.Rules()) != 25_600 || o.set.IDs() > 25_600+256 {
		t.Errorf("%d of %d rules are compiled; they have %d IDs", again, len(o.set.Rules()), o.set.IDs())
	}
	if got := o.set.Rules()[50*256+7].Limits[0].Limit.Max(); got != 8 {
		t.Errorf("the limit that has changed is %d", got)
	}
}
