package envoyconf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/ratelimit"
)

// A Config is the configuration that a domain's rules need. Templates see its exported
// fields and methods.
type Config struct {
	Options
	*wants
	Asks    []ask    // when a request begins, and by hits when it ends
	unknown []*shape // left to the operator
}

// New finds what the rules need, from the set and from the spec that it was built
// from: the set has the rules compiled, without the keys of descriptors.
func New(set *descriptors.Set, spec *descriptors.Spec, opt Options) (*Config, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	w, err := find(set, spec, &opt)
	if err != nil {
		return nil, err
	}
	opt.Istio.Name = cmp.Or(opt.Istio.Name, "headgate")
	c := &Config{Options: opt, wants: w}
	c.ask()
	return c, nil
}

// ask finds what is asked when a request begins and what, by hits, is sent again when
// it ends.
func (c *Config) ask() {
	var ends []ask
	add := func(actions []string, hits bool) {
		c.Asks = append(c.Asks, ask{Actions: actions})
		if hits {
			ends = append(ends, ask{actions, true})
		}
	}
	if c.Resources {
		add(c.resourceActions(), c.resourceHits)
	}
	for i := range c.shapes {
		s := &c.shapes[i]
		asked := s.asked()
		for _, actions := range asked {
			add(actions, s.hits && s.choose == "")
		}
		if len(asked) == 0 {
			c.unknown = append(c.unknown, s)
		}
	}
	c.Asks = append(c.Asks, ends...)
}

// Bootstrap returns a whole configuration, which runs as it is.
func (c *Config) Bootstrap() ([]byte, error) {
	if err := c.checkUpstreams(); err != nil {
		return nil, err
	}
	return render("bootstrap", c)
}

// Fragments returns the parts alone, to be put into a configuration that there
// is already.
func (c *Config) Fragments() ([]byte, error) { return render("fragments", c) }

// EnvoyFilter returns a resource of Istio that puts the parts into the sidecars of its
// namespace.
func (c *Config) EnvoyFilter() ([]byte, error) {
	if c.Native() {
		return nil, errors.New("--tokens native is not for Istio: routes say in which dialect calls are, and an " +
			"EnvoyFilter of headgate has none")
	}
	return render("istio", c)
}

// Part returns a template's text.
func (c *Config) Part(name string) (string, error) {
	text, err := render(name, c)
	return strings.TrimSuffix(string(text), "\n"), err
}

// Cluster returns a cluster's first fields.
func (c *Config) Cluster(name string, addresses []string) (string, error) {
	kind := "STATIC"
	if slices.ContainsFunc(addresses, isName) {
		kind = "STRICT_DNS"
	}
	text, err := render("cluster", struct {
		Name, Kind string
		Addresses  []string
	}{name, kind, addresses})
	return strings.TrimSuffix(string(text), "\n"), err
}

// Mesh returns Istio's name for the cluster of a port of headgate's Service, or ours
// if no Service is set. The chart makes the ports.
func (c *Config) Mesh(ours string, port int) string {
	if c.Istio.Service == "" {
		return ours
	}
	return fmt.Sprintf("outbound|%d||%s", port, c.Istio.Service)
}

// names are what headgate calls the entries that it understands.
var names = map[string]string{
	"id": ratelimit.MetadataID, "owner": ratelimit.MetadataOwner, "leaseKey": ratelimit.MetadataLeaseKey,
	"op": ratelimit.OpKey, "release": ratelimit.OpRelease, "lease": ratelimit.LeaseEntry,
	"estimate": "estimate", "settle": "settle", "outcome": "outcome",
	"defaultLease": ratelimit.DefaultLeaseKey,
}

// Lua returns what reads the bodies of calls to language models, or what hands on what Envoy has read of answers.
func (c *Config) Lua() string {
	if c.Native() {
		return strings.TrimSpace(nativeAnswerLua)
	}
	return strings.TrimSpace(llmLua)
}

// Native reports whether Envoy itself reads the bodies of calls to language models.
func (c *Config) Native() bool { return c.Reserves && c.Tokens == TokensNative }

// NativeRequestLua returns what hands on what Envoy has read of requests.
func (c *Config) NativeRequestLua() string { return strings.TrimSpace(nativeRequestLua) }

// A Dialect is an API of language models that Envoy reads, and the end of its paths as a regular expression.
type Dialect struct{ Protocol, Path string }

// Dialects are those whose requests Envoy reads.
func (c *Config) Dialects() []Dialect {
	return []Dialect{
		{"OPENAI_CHAT_COMPLETIONS", "/chat/completions"},
		{"OPENAI_RESPONSES", "/responses"},
		{"ANTHROPIC_MESSAGES", "/messages"},
		{"GEMINI_GENERATE_CONTENT", ":(generateContent|streamGenerateContent)"},
	}
}

// First is the cluster that routes lead to if nothing chooses another.
func (c *Config) First() string {
	if c.Choice != nil {
		return c.Choice.Clusters()[0]
	}
	return application
}

// Least is the oldest Envoy that the configuration is for.
func (c *Config) Least() Version {
	switch {
	case c.Native():
		return withTokens
	case c.Hits():
		return withHits
	}
	return Oldest
}

// ServiceNode is what Envoy is to be started with as its --service-node.
func (c *Config) ServiceNode() string {
	return strings.NewReplacer("%ENVIRONMENT(", "${", ")%", "}").Replace(c.Owner)
}

// Refusals are the statuses that Envoy's configuration must name: 429 is its default.
func (c *Config) Refusals() []int {
	list := slices.DeleteFunc(slices.Clone(c.statuses), func(status int) bool { return status == 429 })
	slices.Sort(list)
	return slices.Compact(list)
}

// IdleTimeout is that of streams, or 0 where Envoy's own is enough: a delayed request is idle.
func (c *Config) IdleTimeout() time.Duration {
	const envoys = 5 * time.Minute
	if c.delay < envoys-time.Minute {
		return 0
	}
	return c.delay + time.Minute
}

// Buffered is how long entries of the access log may wait for others.
func (c *Config) Buffered() time.Duration { return min(c.Flush/5, time.Second) }

// LeftOut names the rules that the configuration does not ask about, because
// they do not say where the values of their entries come from; "" if it asks
// about all of them.
func (c *Config) LeftOut() string {
	var b strings.Builder
	if c.SOAPBinding {
		b.WriteString("Some resources have a binding. Routes that belong to one say so in the actions of a\n" +
			"descriptor of their own, after path: generic_key with descriptor_key soap_binding.\n")
	}
	if len(c.unknown) > 0 {
		b.WriteString("Rules for descriptors with the entries below are not asked about: where the values\n" +
			"come from is not in the rules. Add actions that send them, in this order:\n")
		for _, s := range c.unknown {
			b.WriteString("  " + words(s.String()))
			if s.hits {
				b.WriteString(" (by hits: and once more, with apply_on_stream_done and is_negative_hits)")
			}
			b.WriteString("\n")
		}
		b.WriteString("Known are remote_address, source_cluster, destination_cluster, method, host, authority,\n" +
			"path, generic_key with one value, and names of headers with a hyphen, such as x-user.\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Claims says what the configuration needs beside it, if resources count by claims of tokens.
func (c *Config) Claims() string {
	if !slices.ContainsFunc(c.Entries, func(name string) bool { _, ok := claimOf(name); return ok }) {
		return ""
	}
	return "Some resources count by a claim of a token. The filter " + jwtFilter + "\nmust stand before the one for " +
		"limits, and its providers need payload_in_metadata: " + jwtPayload + ".\nRequests without the claim count together."
}

// checkUpstreams says which clusters of a whole configuration have no address, or are not needed.
func (c *Config) checkUpstreams() error {
	want := []string{application}
	if c.Choice != nil {
		want = c.Choice.Clusters()
	}
	var have []string
	for _, u := range c.Upstreams() {
		have = append(have, u.Name)
	}
	var errs []error
	for _, name := range want {
		switch {
		case slices.Contains(have, name):
		case c.Choice == nil:
			errs = append(errs, errors.New("--upstream NAME=ADDRESS is for rules with choose; these need one "+
				"--upstream ADDRESS"))
		default:
			errs = append(errs, fmt.Errorf("the rules choose %s: say where %s is, by --upstream %s=HOST:PORT", c.Choice.Name,
				name, name))
		}
	}
	for i, name := range have {
		switch {
		case slices.Contains(have[:i], name):
			errs = append(errs, fmt.Errorf("--upstream: %s is there twice", name))
		case !slices.Contains(want, name) && c.Choice != nil:
			errs = append(errs, fmt.Errorf("--upstream: the rules choose from %s, not from %s", strings.Join(want, ", "), name))
		}
	}
	return errors.Join(errs...)
}

// ChooseLua returns what hands on which cluster was chosen.
func (c *Config) ChooseLua() string {
	return strings.NewReplacer("HEADER", c.Choice.Header(), "NAME", c.Choice.Name, "FIRST", c.Choice.Clusters()[0]).
		Replace(strings.TrimSpace(chooseLua))
}
