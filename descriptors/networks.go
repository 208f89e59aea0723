package descriptors

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// A Network is a network as rules write it: 10.0.0.0/8, 2001:db8::/32, or one address.
type Network struct {
	Text  string
	Place Place
}

// maxNetworks bounds the networks of all rules.
const maxNetworks = 1_000_000

// A networks finds the longest network that has an address, in as many look-ups as networks have lengths: at most 33 of
// IPv4 and 129 of IPv6, however many networks there are.
type networks struct {
	of      map[netip.Prefix]*node // what each network leads to; nil for those of an except
	lengths [2][]int               // of the networks of IPv4 and of IPv6, the longest first
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// add adds a network, which must have no bits beyond its length.
func (n *networks) add(p netip.Prefix, what *node) {
	if n.of == nil {
		n.of = map[netip.Prefix]*node{}
	}
	n.of[p] = what
	lengths := &n.lengths[family(p.Addr())]
	if i, found := slices.BinarySearchFunc(*lengths, p.Bits(), func(a, b int) int { return cmp.Compare(b, a) }); !found {
		*lengths = slices.Insert(*lengths, i, p.Bits())
	}
}

// each calls f for the networks that have all of an address, the longest first, until it returns true. It reports
// whether f did.
func (n *networks) each(address netip.Prefix, f func(*node) bool) bool {
	for _, bits := range n.lengths[family(address.Addr())] {
		if bits > address.Bits() {
			continue
		}
		if what, ok := n.of[netip.PrefixFrom(address.Addr(), bits).Masked()]; ok && f(what) {
			return true
		}
	}
	return false
}

// have reports whether a value is an address in one of the networks. A nil n has none.
func (n *networks) have(value string) bool {
	if n == nil {
		return false
	}
	address, ok := addressOf(value)
	return ok && n.each(address, anyNode)
}

func anyNode(*node) bool { return true }

// maxAddress is longer than every address with brackets, zone and port.
const maxAddress = 100

// addressOf returns the address that a value is, in its shortest form, as a network that has only it: also of
// ADDRESS:PORT, and of an address with a zone. A value that is a network (as of Envoy's masked_remote_address) is all
// of it. It returns false for a value that is no address: 010.0.0.1, in which some read 8, or a list of addresses.
func addressOf(value string) (netip.Prefix, bool) {
	var at netip.Addr
	var err error
	bits := -1 // all
	inside, bracket := strings.CutPrefix(value, "[")
	switch {
	case len(value) > maxAddress:
		return netip.Prefix{}, false
	case strings.Contains(value, "/"):
		var p netip.Prefix
		p, err = netip.ParsePrefix(value)
		at, bits = p.Addr(), p.Bits()
	case bracket && strings.HasSuffix(inside, "]") && strings.Contains(inside, ":"):
		at, err = netip.ParseAddr(strings.TrimSuffix(inside, "]"))
	case bracket || strings.Count(value, ":") == 1:
		var with netip.AddrPort
		with, err = netip.ParseAddrPort(value)
		at = with.Addr()
	default:
		at, err = netip.ParseAddr(value)
	}
	if err != nil {
		return netip.Prefix{}, false
	}
	return shortest(at, bits), true
}

// shortest returns a network without a zone, and as one of IPv4 if that is what it is; -1 bits are all.
func shortest(at netip.Addr, bits int) netip.Prefix {
	if at.Is4In6() && (bits < 0 || bits >= mappedBits) {
		at, bits = at.Unmap(), max(bits-mappedBits, -1)
	}
	if bits < 0 {
		bits = at.BitLen()
	}
	return netip.PrefixFrom(at.WithZone(""), bits)
}

// mappedBits is the length of the network of IPv4 in IPv6, ::ffff:0:0/96.
const mappedBits = 96

// parse returns the network, or what is wrong with it.
func (n *Network) parse() (p netip.Prefix, err error) {
	if strings.Contains(n.Text, "/") {
		p, err = netip.ParsePrefix(n.Text)
	} else {
		var at netip.Addr
		at, err = netip.ParseAddr(n.Text)
		p = netip.PrefixFrom(at, at.BitLen())
	}
	switch {
	case err != nil || p.Addr().Zone() != "":
		return p, fmt.Errorf("network %q must be an address and the length of its prefix, such as 10.0.0.0/8 or "+
			"2001:db8::/32, or one address", spell.Short(n.Text))
	case p != p.Masked():
		return p, fmt.Errorf("network %s has bits beyond its length; write %v, or %v for the one address", n.Text,
			p.Masked(), p.Addr())
	}
	return shortest(p.Addr(), p.Bits()), nil
}

// String returns the network as rules are named by it.
func (n Network) String() string {
	p, err := n.parse()
	if err != nil {
		return n.Text
	}
	return p.String()
}

// networks reads a list of networks and calls add for each.
func (s *spot) networks(list []Network, add func(at *spot, p netip.Prefix)) {
	for i := range list {
		if s.b.networks++; s.b.networks > maxNetworks {
			s.errorf("", "the rules have more than %d networks", maxNetworks)
			return
		}
		at := s.part(list[i].Place, nil)
		if p, err := list[i].parse(); err != nil {
			at.errorf("", "%v", err)
		} else {
			add(at, p)
		}
	}
}

// addressed checks what a rule of descriptors says of addresses. It reports whether the rule can be told apart.
func (s *spot) addressed(r *RuleSpec) bool {
	some := r.Value == "" && !strings.Contains(r.Key, "*")
	switch {
	case len(r.Networks) > 0 && r.Value != "":
		s.errorf("network", "the rule has a network as well as a value; make them two rules")
	case len(r.Networks) > 0 && !some:
		s.errorf("network", "key %q has a *, and a rule with a network has the one key whose values are addresses",
			spell.Short(r.Key))
	case len(r.Except) > 0 && !some:
		s.errorf("except", "except needs a rule for all values of its key, or for those of a network; leave value out, and "+
			"write a network where a * stands for the rest of an address")
	default:
		return true
	}
	return false
}

// byAddress adds what a rule right below w says of addresses.
func (b *builder) byAddress(lv *level, s *RuleSpec, n *node, w *way) {
	if lv.addresses == nil && (len(s.Networks) > 0 || n.except != nil) {
		lv.addresses = addresses{}
	}
	if len(s.Networks) == 0 {
		return
	}
	in := lv.addresses[s.Key]
	if in == nil {
		in = &networks{}
		lv.addresses[s.Key] = in
	}
	to := w.to(s)
	(&spot{b, s.Place, s.Fields, &to}).networks(s.Networks, func(at *spot, p netip.Prefix) {
		if in.of[p] != nil {
			at.errorf("", "the network %v is there twice among rules of the key %q; of several that have an address, the "+
				"smallest applies", p, spell.Short(s.Key))
		}
		in.add(p, n)
	})
	lv.literal(s, n) // values that count together have its text
}

// find returns the node for a value that no rule has as text; or bare, the one for any value; or nil.
func (as addresses) find(e *Entry, bare *node) (found *node) {
	in := as[e.Key]
	if in == nil && (bare == nil || bare.except == nil) {
		return bare
	}
	address, ok := addressOf(e.Value)
	if ok && in != nil && in.each(address, func(n *node) bool {
		found = n
		return !n.exempts(address)
	}) {
		return found
	}
	if ok && bare != nil && bare.exempts(address) {
		return nil
	}
	return bare
}

func (n *node) exempts(address netip.Prefix) bool {
	return n.except != nil && n.except.each(address, anyNode)
}

// except compiles the networks that a rule is not for; nil if there are none.
func (s *spot) except(list []Network) *networks {
	if len(list) == 0 {
		return nil
	}
	var e networks
	s.networks(list, func(at *spot, p netip.Prefix) {
		if _, twice := e.of[p]; twice {
			at.errorf("", "except has the network %v twice", p)
		}
		e.add(p, nil)
	})
	return &e
}

// shownNetworks bounds how many networks texts name.
const shownNetworks = 3

// networksText names networks, "" for none. Of many it names a few, and has a hash of all, so that each change shows.
func networksText(list []Network) string {
	var b strings.Builder
	for i := range list[:min(len(list), shownNetworks)] {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(list[i].String())
	}
	if more := len(list) - shownNetworks; more > 0 {
		all := fnv.New32a()
		for i := range list {
			fmt.Fprintln(all, list[i])
		}
		fmt.Fprintf(&b, " and %d more (%08x)", more, all.Sum32())
	}
	return b.String()
}
