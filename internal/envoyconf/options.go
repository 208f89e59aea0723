package envoyconf

import (
	"errors"
	"fmt"
	"net"
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
	// Upstream is the application, as host:port.
	Upstream string
	// Listen is the port for clients, Admin the address of Envoy's own pages.
	Listen int
	Admin  string

	// LeaseKey is where in dynamic metadata the lease of a request is kept.
	LeaseKey string
	// Owner names this Envoy as the owner of its requests' leases: plain text,
	// or %ENVIRONMENT(NAME)% for what Envoy is started with as its
	// --service-node as well. Empty sends none.
	Owner string
	// OwnerGrace is that of the service. Zero stands for its default, 15 s.
	OwnerGrace time.Duration

	// Timeout is the longest wait for headgate's answer.
	Timeout time.Duration
	// Deny refuses requests when headgate does not answer.
	Deny bool
}

// A Version is one of Envoy.
type Version struct{ Major, Minor int }

// Oldest is the oldest Envoy that can keep what rules say.
var Oldest = Version{1, 36}

// withHits is the oldest Envoy that can count down.
var withHits = Version{1, 38}

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
		wrong("envoy %v is too old: what requests in flight and the statuses of tiers need is there from %v on", o.Version, Oldest)
	}
	for _, a := range []struct {
		what string
		list []string
	}{
		{"the address of headgate", o.Address},
		{"the address of its access log service", o.Services},
		{"the address of the application", []string{o.Upstream}},
		{"the address of Envoy's admin pages", []string{o.Admin}},
	} {
		if len(a.list) == 0 {
			wrong("%s is missing", a.what)
		}
		for _, s := range a.list {
			if _, err := address(s); err != nil {
				wrong("%s: %w", a.what, err)
			}
		}
	}
	if o.Listen < 0 || o.Listen > 65535 {
		wrong("listen: %d is not a port", o.Listen)
	}
	if o.LeaseKey == "" {
		wrong("the lease needs a key in dynamic metadata")
	}
	if len(o.Owner) > maxOwner || strings.ContainsFunc(o.Owner, func(r rune) bool { return r < ' ' || r > '~' }) {
		wrong("the owner must be at most %d printable ASCII characters", maxOwner)
	}
	if strings.Contains(o.Owner, "%") && !o.started() {
		wrong("the owner %q must be plain text or %%ENVIRONMENT(NAME)%%: Envoy replaces nothing in what it tells with its access log, which must be the same", o.Owner)
	}
	if o.Timeout < time.Millisecond {
		wrong("the timeout must be at least 1ms: without one, a headgate that hangs would hold up every request, and before 1.38 Envoy would not ask at all")
	}
	return errors.Join(errs...)
}

// started reports whether the owner is known when Envoy starts.
func (o *Options) started() bool {
	name, ok := strings.CutPrefix(o.Owner, "%ENVIRONMENT(")
	name, end := strings.CutSuffix(name, ")%")
	return ok && end && name != "" && !strings.ContainsAny(name, "%() ")
}

// maxOwner is how long an owner's name may be.
const maxOwner = 256

// address makes Envoy's form of host:port or unix:PATH.
func address(s string) (mapping, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if path == "" {
			return nil, fmt.Errorf("%q has no path", s)
		}
		return one("pipe", one("path", path)), nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return nil, fmt.Errorf("%q is neither host:port nor unix:PATH", s)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65535 || host == "" {
		return nil, fmt.Errorf("%q is neither host:port nor unix:PATH", s)
	}
	return one("socket_address", mapping{f("address", host), f("port_value", n)}), nil
}

// isName reports whether an address has a name that Envoy must look up.
func isName(s string) bool {
	host, _, err := net.SplitHostPort(s)
	return err == nil && !strings.HasPrefix(s, "unix:") && net.ParseIP(host) == nil
}

// seconds writes a duration as protobuf's JSON does.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Round(time.Millisecond).Seconds(), 'f', -1, 64) + "s"
}
