package repo

import (
	"fmt"
	"slices"
	"strings"
)

// A room says which packages of ours the packages of one directory may import.
// Directories are written as for the go command: "a" is that package alone,
// "a/..." also what is below it.
type room struct {
	dir  string
	may  []string
	why  string // what the packages are, as the reason of a finding
	bare bool   // imports nothing but the standard library and itself
}

// rooms are the layers of this repository. The first row that a package matches
// holds; a package that matches none may import all that is not for tests only.
// Packages may always import what is below their row's directory.
var rooms = []room{
	{dir: "limit/...", bare: true, why: "limit is the pure core, which imports the standard library only"},
	{dir: "policies", may: []string{"limit", "internal/kit/background", "internal/kit/units"},
		why: "policies knows limit only, and no database"},
	{dir: "policies/table", may: []string{"policies", "limit", "internal/kit/background", "internal/kit/units"},
		why: "the table of policies knows no database"},
	{dir: "policies/httpapi/...", may: []string{"policies", "policies/table", "internal/kit/web"},
		why: "the admin API of policies knows no store"},
	{dir: "policies/sqlstore/...", may: []string{"policies", "policies/table", "internal/kit/background",
		"internal/kit/sqldb/..."},
		why: "a store of policies knows the contract of policies only"},

	{dir: "descriptors", may: []string{"limit", "policies", "internal/kit/background", "internal/kit/spell",
		"internal/kit/units"}, why: "descriptors knows limit only, and no source of rules"},
	{dir: "descriptors/...", may: []string{"limit", "internal/kit/certs", "internal/kit/protofields",
		"internal/kit/background", "internal/kit/spell", "internal/kit/units", "internal/kit/yamlfile", "descriptors/..."},
		why: "sources of rules know descriptors and limit only"},

	{dir: "backends", may: []string{"limit", "internal/kit/background"}, why: "the contract of stores knows limit only"},
	{dir: "backends/backendtest/...", may: []string{"limit", "backends", "test/random"},
		why: "the suite knows the contract only"},
	{dir: "backends/layers/...", may: []string{"limit", "backends", "backends/internal/...", "internal/kit/background"},
		why: "a layer knows the contract and other layers, but no store"},
	{dir: "backends/stack", may: []string{"limit", "backends", "backends/memory", "backends/layers/observe",
		"internal/kit/background"}, why: "the stack knows the contract, no store but memory, and nothing above them"},
	{dir: "backends/internal/...", may: []string{"limit", "backends", "internal/kit/background"},
		why: "what stores share knows no store"},
	{dir: "backends/*", may: []string{"limit", "backends", "backends/layers", "backends/internal/...",
		"internal/kit/background", "internal/kit/bounded", "internal/kit/certs", "internal/kit/params",
		"internal/kit/sockio", "internal/kit/spell", "internal/kit/sqldb/..."},
		why: "a store knows the contract and who puts layers around it, and no other store or layer"},

	{dir: "", may: []string{"limit", "descriptors/...", "backends", "backends/stack", "policies", "ratelimit",
		"ratelimit/leases", "internal/kit/background", "internal/kit/metrics"},
		why: "the library is the engine and a store in process, without a server"},
	{dir: "metrics", may: []string{"internal/kit/metrics/..."}, why: "metrics publishes rows, and knows no limiter"},
	{dir: "tracing", may: []string{"ratelimit"}, why: "tracing makes spans of decisions, and knows no limiter"},
	{dir: "middleware", may: []string{"", "internal/kit/background", "internal/kit/units", "internal/kit/web"},
		why: "middleware knows the library, and nothing below it"},
	{dir: "middleware/grpclimit/...", may: []string{"", "internal/kit/background", "internal/kit/units"},
		why: "interceptors know the library, and nothing below it"},

	{dir: "ratelimit/httpapi/...", may: []string{"limit", "policies", "descriptors", "backends", "ratelimit",
		"ratelimit/fleet", "ratelimit/insight", "internal/kit/spell", "internal/kit/units", "internal/kit/web"},
		why: "the admin API of counters knows no store"},
	{dir: "ratelimit", may: []string{"limit", "policies", "descriptors", "backends", "ratelimit/leases",
		"internal/kit/background", "internal/kit/spell", "internal/kit/units"},
		why: "ratelimit knows limit, descriptors and the contract of stores, and nobody who reads decisions"},
	{dir: "ratelimit/...", may: []string{"limit", "policies", "descriptors", "backends", "internal/kit/background",
		"internal/kit/spell", "internal/kit/units"},
		why: "ratelimit knows limit, descriptors and the contract of stores only"},
	{dir: "internal/kit/sockio/...", bare: true, why: "sockets know nobody"},
	{dir: "internal/wire/handshake/...", may: []string{"internal/kit/background"}, why: "handshakes know no protocol"},
	{dir: "internal/kit/memory/...", bare: true, why: "memory counts bytes and knows no protocol"},
	{dir: "internal/wire/unary/...", may: []string{"internal/wire/handshake", "internal/kit/background",
		"internal/kit/memory", "internal/kit/sockio"}, why: "the wire knows no rate limiting"},
	{dir: "internal/wire/messages/...", may: []string{"limit", "descriptors", "ratelimit", "internal/kit/protofields",
		"internal/kit/units"}, why: "messages know what they say, and no connection"},
	{dir: "internal/wire/transport/...", may: []string{"ratelimit", "tracing", "internal/wire/messages",
		"internal/wire/unary", "internal/kit/certs", "internal/kit/web"},
		why: "a transport knows the service, and nothing below it"},
	{dir: "internal/wire/accesslog/...", may: []string{"ratelimit", "ratelimit/leases", "internal/wire/transport",
		"internal/kit/background", "internal/kit/protofields"},
		why: "the access log knows leases, and nothing of the server"},

	{dir: "slots/plan/...", bare: true, why: "plan is pure arithmetic, which imports the standard library only"},
	{dir: "slots/sqlstore/...", may: []string{"slots", "slots/plan", "internal/kit/background", "internal/kit/sqldb/..."},
		why: "a store of slots knows the contract of slots only"},
	{dir: "slots/httpapi/...", may: []string{"slots", "slots/plan", "internal/kit/background", "internal/kit/units",
		"internal/kit/web"}, why: "the HTTP API of slots knows no store"},
	{dir: "slots/internal/slotstest/...", may: []string{"slots", "slots/plan", "test/random"},
		why: "the suite knows the contract of slots only"},
	{dir: "slots", may: []string{"slots/plan", "internal/kit/background"}, why: "slots stands alone"},

	{dir: "notify", bare: true, why: "notify decides and knows nobody"},
	{dir: "notify/pgstore/...", may: []string{"notify", "internal/kit/background", "internal/kit/sqldb/..."},
		why: "a store of users knows no broker and no cache"},
	{dir: "notify/rediscache/...", may: []string{"notify", "notify/pgstore", "backends/redis", "internal/kit/background"},
		why: "the cache knows the store behind it, and no broker"},
	{dir: "notify/kafka/...", may: []string{"notify", "internal/kit/background", "internal/kit/bounded",
		"internal/kit/certs"},
		why: "the broker knows messages only"},
	{dir: "notify/sender/...", may: []string{"notify", "internal/kit/background"}, why: "sending knows messages only"},
	{dir: "notify/httpapi/...", may: []string{"notify", "internal/kit/background", "internal/kit/units",
		"internal/kit/web"}, why: "the HTTP API of the gateway knows no store"},
	{dir: "notify/gateway", may: []string{"notify/...", "internal/kit/settings", "internal/kit/metrics/...",
		"internal/kit/sqldb/...", "internal/kit/web", "backends/redis"}, why: "the gateway puts its parts together"},
	{dir: "notify/serve", may: []string{"notify", "notify/kafka", "notify/sender", "internal/kit/background",
		"internal/kit/settings", "internal/kit/metrics/...", "internal/kit/web"},
		why: "what both programs share has no database and no Redis"},

	{dir: "internal/kit/sqldb/...", may: []string{"internal/kit/background", "internal/kit/certs", "internal/kit/params",
		"internal/kit/spell"},
		why: "databases know nothing of what is kept in them"},
	{dir: "internal/kit/metrics/...", may: []string{}, why: "what collects metrics knows no feature"},
	{dir: "internal/kit/jwks/...", may: []string{"internal/kit/background"},
		why: "jwks verifies tokens, and knows no server"},
	{dir: "internal/app/config/...", may: []string{"limit", "policies", "descriptors", "ratelimit/...",
		"internal/wire/accesslog", "internal/app/capture", "slots", "slots/plan", "internal/kit/jwks", "internal/kit/certs",
		"internal/kit/settings"},
		why: "settings know the settings of parts, and no store"},
	{dir: "internal/app/compat/...", may: []string{"internal/kit/spell"},
		why: "compat turns one program's environment into names of settings, and knows neither program"},
	{dir: "internal/kit/bounded/...", bare: true, why: "bounded is for all, and so knows nobody"},
	{dir: "internal/kit/certs/...", may: []string{"internal/kit/bounded"}, why: "certs is for all, and so knows nobody"},
	{dir: "internal/kit/settings/...",
		may: []string{"internal/kit/metrics", "internal/kit/spell", "internal/kit/yamlfile"},
		why: "settings knows no program and no feature"},
	{dir: "internal/kit/yamlfile/...", may: []string{}, why: "yamlfile is for all, and so knows nobody"},
	{dir: "internal/kit/params/...", may: []string{"internal/kit/spell"},
		why: "params is for all stores, and so knows none"},
	{dir: "internal/kit/background/...", may: []string{}, why: "background is for all, and so knows nobody"},
	{dir: "internal/kit/units/...", bare: true, why: "units is for all, and so knows nobody"},
	{dir: "internal/kit/protofields/...", may: []string{}, why: "protofields is for all, and so knows nobody"},
	{dir: "internal/app/client/...", may: []string{"internal/kit/certs", "internal/kit/protofields",
		"internal/kit/settings", "internal/kit/spell", "internal/kit/units"},
		why: "clients know the wire and where a service is, and nothing of how it works"},
	{dir: "internal/app/tracing/...", may: []string{"ratelimit", "tracing", "internal/kit/certs",
		"internal/kit/background", "internal/kit/spell"},
		why: "tracing knows where spans go, and nothing of what they are about"},
	{dir: "internal/kit/spell/...", bare: true, why: "spell is for all, and so knows nobody"},
	{dir: "internal/app/server/...", may: []string{"limit", "policies/...", "descriptors/...", "ratelimit/...", "backends",
		"backends/stack/...", "slots/...", "internal/..."}, why: "the server gets its stores from backends/stack"},
}

// stacked are packages that only some may import, so that a server and the
// benchmark cannot differ in how a store is reached. The first row holds that a
// package matches.
var stacked = []struct {
	dir string
	by  []string
}{
	{"backends/layers/coalesce", []string{"backends/...", "test/bench"}}, // which measures what it saves a bare store
	{"backends/layers/prefetch", []string{"backends/...", "test/bench"}}, // likewise
	{"backends/layers/...", []string{"backends/..."}},
	{"backends/memory", []string{"backends/...", "test/bench"}}, // which measures bare stores, too
	// The notification gateway keeps no limits of rules in Redis, but shares the client.
	{"backends/redis", []string{"backends/...", "test/bench", "notify/..."}},
	{"backends/sqlstore", []string{"backends/...", "test/bench"}},
	{"backends/dynamodb", []string{"backends/...", "test/bench"}},
}

// linkers are the packages that link stores, by imports as "_", and use them by backends/stack only.
var linkers = []string{"internal/app/server"}

// links reports whether p imports one of the stacked packages only to have it registered.
func links(p pkg, imported, path string) bool {
	return matchesAny(linkers, p.path) && slices.Contains(p.linked, imported) && reachesPastStack(p.path, path)
}

// reachesPastStack reports whether path imports what it gets from backends/stack.
func reachesPastStack(path, imported string) bool {
	for _, row := range stacked {
		if matches(row.dir, imported) {
			return !matchesAny(row.by, path)
		}
	}
	return false
}

// testOnly are packages that no program imports, and testers those that may
// import them beside tests.
var (
	testOnly = []string{"test/...", "backends/backendtest/...", "backends/internal/remote/...",
		"slots/internal/slotstest/..."}
	testers = []string{"test/...", "backends/backendtest/...", "slots/internal/slotstest/..."}
)

// matches reports whether a package is among those that a pattern of the go
// command names; a last element "*" stands for one element and what is below.
func matches(pattern, path string) bool {
	if dir, ok := strings.CutSuffix(pattern, "/..."); ok {
		return within(path, dir)
	}
	if dir, ok := strings.CutSuffix(pattern, "/*"); ok {
		return strings.HasPrefix(path, dir+"/")
	}
	return path == pattern
}

func matchesAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, path) })
}

// own is the pattern of the packages that belong together with path in row r.
func (r room) own(path string) string {
	if dir, ok := strings.CutSuffix(r.dir, "/*"); ok {
		name, _, _ := strings.Cut(path[len(dir)+1:], "/")
		return dir + "/" + name + "/..."
	}
	return r.dir
}

// checkImports holds one package to its layer. Each finding says which import
// is wrong and why.
func checkImports(p pkg) (found []string) {
	at := slices.IndexFunc(rooms, func(r room) bool { return matches(r.dir, p.path) })
	for _, imported := range p.imports {
		refuse := func(why string) {
			found = append(found, fmt.Sprintf("%s imports %s: %s", p.path, imported, why))
		}
		our, isOurs := ours(imported)
		switch {
		case !isOurs:
			if at >= 0 && rooms[at].bare && !fromStandardLibrary(imported) {
				refuse(rooms[at].why)
			}
		case our == "internal/kit/metrics" && (at < 0 || !rooms[at].bare):
			// Each feature brings its own rows of metrics.
		case matchesAny(testOnly, our) && !matchesAny(testers, p.path):
			refuse("it is for tests only")
		case within(our, "cmd"):
			refuse("commands are for people, not for packages")
		case links(p, imported, our):
		case at >= 0 && !matches(rooms[at].own(p.path), our) && !matchesAny(rooms[at].may, our):
			refuse(rooms[at].why)
		case reachesPastStack(p.path, our):
			refuse("stores and layers come from backends/stack, in the server as in the benchmark")
		}
	}
	return found
}
