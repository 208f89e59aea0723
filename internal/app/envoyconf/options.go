package envoyconf

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Options say for what Envoy, headgate and application a configuration is.
type Options struct {
	// Version is the oldest Envoy that is to read it.
	Version Version
	// Domain is the rules' domain; it may be left out if there is only one.
	Domain string
	// Address is where headgate is asked, Services where its access log
	// service is: host:port or unix:PATH of each replica.
	Address, Services []string
	// Upstream is the application, as host:port; for rules with choose each of its clusters, as NAME=host:port.
	Upstream []string
	// Listen is the port for clients, Admin the address of Envoy's own pages.
	Listen int
	Admin  string

	// Tokens says who reads the bodies of calls to language models: TokensLua or TokensNative.
	Tokens string

	// LeaseKey is where in dynamic metadata the lease of a request is kept.
	LeaseKey string
	// Owner names this Envoy as the owner of its requests' leases: plain text,
	// or text with %ENVIRONMENT(NAME)% in it that is what Envoy is started with
	// as its --service-node as well. Empty sends none.
	Owner string
	// OwnerGrace is that of the service. Zero stands for its default, 15 s.
	OwnerGrace time.Duration

	// Istio says what an EnvoyFilter is for.
	Istio Istio
	// TLS says how headgate is reached.
	TLS TLS

	// Timeout is the longest wait for headgate's answer.
	Timeout time.Duration
	// Deny refuses requests when headgate does not answer.
	Deny bool
}

// Istio has the fields of an EnvoyFilter that rules say nothing about.
type Istio struct {
	// Service is the host of headgate's Service in the mesh, as
	// NAME.NAMESPACE.svc.cluster.local. Envoy then asks the mesh's own clusters, with its
	// endpoints and its mTLS. Empty: clusters of the filter's own, by Options.Address.
	Service string
	// Name and Namespace are the filter's. An empty name is headgate; an empty namespace is
	// left to who applies it.
	Name, Namespace string
	// Selector are labels, each as NAME=VALUE, of the pods that it is for. Empty: all of its
	// namespace.
	Selector []string
}

// TLS has the files, on Envoy's side, for calls to headgate. Without a CA calls are in plain.
type TLS struct {
	CA, Cert, Key string
	// SANs are names of which headgate's certificate must have one: DNS names, or URIs such
	// as spiffe://….
	SANs []string
}

// IstioOwner is the id that Istio gives the node of a sidecar, made of what its proxy has in
// its environment.
const IstioOwner = "sidecar~%ENVIRONMENT(INSTANCE_IP)%~" +
	"%ENVIRONMENT(POD_NAME)%.%ENVIRONMENT(POD_NAMESPACE)%~%ENVIRONMENT(POD_NAMESPACE)%.svc.cluster.local"

// A Version is one of Envoy.
type Version struct{ Major, Minor int }

// Oldest is the oldest Envoy that can keep what rules say.
var Oldest = Version{1, 36}

// withHits is the oldest Envoy that can count down.
var withHits = Version{1, 38}

// withTokens is the oldest Envoy that reads the bodies of calls to language models.
var withTokens = Version{1, 40}

// Who reads the bodies of calls to language models.
const (
	TokensLua    = "lua"    // a script of headgate's own
	TokensNative = "native" // Envoy, from 1.40 on
)

// ParseVersion reads "1.40", "1.40.0" or "v1.40.0".
func ParseVersion(s string) (Version, error) {
	parts := strings.Split(strings.TrimPrefix(s, "v"), ".")
	if len(parts) == 2 || len(parts) == 3 {
		var v Version
		var errs [2]error
		v.Major, errs[0] = strconv.Atoi(parts[0])
		v.Minor, errs[1] = strconv.Atoi(parts[1])
		if errs[0] == nil && errs[1] == nil && v.Major >= 0 && v.Minor >= 0 {
			return v, nil
		}
	}
	return Version{}, fmt.Errorf("unknown Envoy version %q; write one like 1.40", s)
}

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

func (v Version) before(o Version) bool {
	return v.Major < o.Major || v.Major == o.Major && v.Minor < o.Minor
}

// check says what is wrong with the options.
func (o *Options) check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Version.before(Oldest) {
		wrong("envoy %v is too old: what requests in flight and the statuses of tiers need is there from %v on",
			o.Version, Oldest)
	}
	for _, a := range []struct {
		what, flag string
		list       []string
	}{
		{"the address of headgate", "--address", o.Address},
		{"the address of its access log service", "--services", o.Services},
		{"the address of the application", "--upstream", addresses(o.Upstreams())},
		{"the address of Envoy's admin pages", "--admin", []string{o.Admin}},
	} {
		if len(a.list) == 0 {
			wrong("%s is missing (%s)", a.what, a.flag)
		}
		for _, s := range a.list {
			if _, err := address(s); err != nil {
				wrong("%s (%s): %w", a.what, a.flag, err)
			}
		}
	}
	if o.Listen < 0 || o.Listen > 65535 {
		wrong("--listen: %d is not a port", o.Listen)
	}
	if o.LeaseKey == "" {
		wrong("the lease needs a key in dynamic metadata")
	}
	if len(o.Owner) > maxOwner || strings.ContainsFunc(o.Owner, func(r rune) bool { return r < ' ' || r > '~' }) {
		wrong("the owner must be at most %d printable ASCII characters", maxOwner)
	}
	if strings.Contains(o.Owner, "%") && !o.Started() {
		wrong("the owner %q must be plain text, or have no %% but in %%ENVIRONMENT(NAME)%%: Envoy replaces nothing in the "+
			"metadata of its access log, which must be the same", o.Owner)
	}
	switch {
	case o.Tokens != TokensLua && o.Tokens != TokensNative:
		wrong("--tokens is %s or %s, not %q", TokensLua, TokensNative, o.Tokens)
	case o.Tokens == TokensNative && o.Version.before(withTokens):
		wrong("--tokens native needs --envoy-version %v: older Envoys do not read the bodies of calls to language models",
			withTokens)
	}
	o.checkIstio(wrong)
	o.checkTLS(wrong)
	if o.Timeout < time.Millisecond {
		wrong("the timeout must be at least 1ms: without one, a headgate that hangs would hold up every request, " +
			"and before 1.38 Envoy would not ask at all")
	}
	return errors.Join(errs...)
}

func addresses(list []upstream) (all []string) {
	for _, u := range list {
		all = append(all, u.Address)
	}
	return all
}

// checkIstio says what is wrong with the fields of an EnvoyFilter.
func (o *Options) checkIstio(wrong func(format string, args ...any)) {
	if s := o.Istio.Service; s != "" && !serviceHost.MatchString(s) {
		wrong("the service of Istio: %q is not a host such as headgate.infra.svc.cluster.local, without a port", s)
	}
	for _, label := range o.Istio.Selector {
		if name, value, ok := strings.Cut(label, "="); !ok || name == "" || value == "" {
			wrong("the selector %q is not NAME=VALUE", label)
		}
	}
}

// checkTLS says what is wrong with the files and names of TLS.
func (o *Options) checkTLS(wrong func(format string, args ...any)) {
	switch t := o.TLS; {
	case t.CA == "" && (t.Cert != "" || t.Key != "" || len(t.SANs) > 0):
		wrong("TLS needs the file of the authority that issued headgate's certificate")
	case (t.Cert == "") != (t.Key == ""):
		wrong("the client certificate of TLS needs its key, and the key its certificate")
	case t.CA != "" && o.Istio.Service != "":
		wrong("TLS of a service of Istio is the mesh's: say it in a DestinationRule")
	case t.CA != "" && len(t.SANs) == 0:
		wrong("TLS needs a name that headgate's certificate must have: without one, " +
			"any certificate of the authority would do")
	}
}

// serviceHost is what a Service is called in a mesh.
var serviceHost = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?){2,}$`)

var fromEnvironment = regexp.MustCompile(`%ENVIRONMENT\([^%() ]+\)%`)

// Started reports whether the owner is known when Envoy starts, from its environment.
func (o *Options) Started() bool {
	rest := fromEnvironment.ReplaceAllString(o.Owner, "")
	return rest != o.Owner && !strings.Contains(rest, "%")
}

// maxOwner is how long an owner's name may be.
const maxOwner = 256

// ServerName is the name that Envoy asks for, if one is known.
func (t *TLS) ServerName() string {
	for _, san := range t.SANs {
		if !isURI(san) {
			return san
		}
	}
	return ""
}

// An upstream is a cluster behind Envoy.
type upstream struct{ Name, Address string }

// application is the name of the only cluster, if nothing is chosen.
const application = "application"

// Upstreams are the clusters behind Envoy, as Options.Upstream has them.
func (o *Options) Upstreams() (list []upstream) {
	for _, text := range o.Upstream {
		name, addr, named := strings.Cut(text, "=")
		if !named {
			name, addr = application, text
		}
		list = append(list, upstream{name, addr})
	}
	return list
}
