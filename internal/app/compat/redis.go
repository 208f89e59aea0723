package compat

import (
	"cmp"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// ownPrefix begins the keys of headgate, so that they are never those of the reference.
const ownPrefix = "headgate:"

// sharedLayout is the value of REDIS_LAYOUT with which headgate counts in the reference's counters.
const sharedLayout = "envoy"

// Bounds of what headgate's URL takes.
const (
	leastPool   = 20
	mostPool    = 10_000
	mostTimeout = time.Minute
)

// backend makes the URL of the store.
func backend(t *translation) []string {
	switch kind := strings.ToLower(t.text("BACKEND_TYPE")); kind {
	case "redis":
	case "memory":
		return []string{"memory://"}
	case "memcache":
		t.failf("BACKEND_TYPE", "memcache is not supported: use redis, or memory for a single replica")
		return nil
	default:
		t.failf("BACKEND_TYPE", "must be redis or memory, not %q", kind)
		return nil
	}
	if t.on("REDIS_AWS_IAM_AUTH") {
		t.failf("REDIS_AWS_IAM_AUTH",
			"is not supported: have a sidecar write the password into a file, and name it in REDIS_AUTH_FILE")
	}
	if !named(t, "REDIS_", "BACKEND_TYPE is not memory") {
		return nil
	}
	return makeURL(t, "REDIS_")
}

// isSocket reports whether there is a Unix socket. Tests replace it.
var isSocket = func(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

// named reports whether a variable names the store, or the socket is there that is the reference's default, which
// twemproxy serves there.
func named(t *translation, of, because string) bool {
	socket := t.text(of + "URL")
	if t.set(of+"URL") || t.text(of+"SOCKET_TYPE") == "unix" && isSocket(socket) {
		return true
	}
	t.failf(of+"URL", "must be set, because %s and there is no socket at %s, the reference's default", because, socket)
	return false
}

// perSecondOn is the variable that asks for a second Redis.
const perSecondOn = "REDIS_PERSECOND"

// perSecondBackend makes the URL of the store of limits per second.
func perSecondBackend(t *translation) []string {
	if !t.on(perSecondOn) || !strings.EqualFold(t.text("BACKEND_TYPE"), "redis") {
		return nil
	}
	if !named(t, "REDIS_PERSECOND_", "REDIS_PERSECOND is true") {
		return nil
	}
	return makeURL(t, "REDIS_PERSECOND_")
}

// makeURL makes a URL of variables that begin with a prefix. Certificates, prefixes of keys and the layout are those of
// both stores, as in the reference.
func makeURL(t *translation, prefix string) []string {
	r := &redisURL{of: prefix, params: url.Values{}}
	if !r.servers(t) {
		return nil
	}
	r.login(t)
	r.tls(t)
	r.settings(t)
	return []string{r.String()}
}

// A redisURL is the URL of the store on its way.
type redisURL struct {
	of       string // what the variables begin with
	mode     string // "", "+sentinel" or "+cluster"
	hosts    []string
	socket   string // path of a Unix socket, instead of hosts
	master   string
	db       string
	secure   bool
	user     string
	password string
	params   url.Values
}

// A server is one element of REDIS_URL.
type server struct{ host, user, password, db string }

// servers reads REDIS_SOCKET_TYPE, REDIS_TYPE and REDIS_URL.
func (r *redisURL) servers(t *translation) bool {
	text := t.text(r.of + "URL")
	list := []string{text}
	switch kind := strings.ToLower(t.text(r.of + "TYPE")); kind {
	case "single":
	case "cluster":
		r.mode, list = "+cluster", strings.Split(text, ",")
	case "sentinel":
		r.mode, list = "+sentinel", strings.Split(text, ",")
		if r.master, list = list[0], list[1:]; len(list) == 0 || r.master == "" {
			t.failf(r.of+"URL", "want the master's name and the Sentinels, such as mymaster,s1:26379,s2:26379")
			return false
		}
	default:
		t.failf(r.of+"TYPE", "must be SINGLE, SENTINEL or CLUSTER, not %q", kind)
		return false
	}
	switch socket := t.text(r.of + "SOCKET_TYPE"); socket {
	case "tcp", "tcp4", "tcp6":
		return r.tcp(t, list)
	case "unix":
		if r.mode != "" { // the reference reaches those by TCP, whatever this variable says
			return r.tcp(t, list)
		}
		if !strings.HasPrefix(text, "/") {
			t.failf(r.of+"SOCKET_TYPE",
				"is unix, and %[1]sURL is not the path of a socket; set %[1]sSOCKET_TYPE=tcp for servers", r.of)
			return false
		}
		r.socket = text
		return true
	default:
		t.failf(r.of+"SOCKET_TYPE", "must be tcp or unix, not %q", socket)
		return false
	}
}

// tcp reads servers that are reached by TCP.
func (r *redisURL) tcp(t *translation, list []string) bool {
	var first server
	for i, text := range list {
		s, ok := parseServer(strings.TrimSpace(text), &r.secure)
		switch {
		case !ok:
			t.failf(r.of+"URL", "element %d of %d must be host:port or redis://user:password@host:port/db", i+1, len(list))
			return false
		case i > 0 && (s.user != first.user || s.password != first.password || s.db != first.db):
			t.failf(r.of+"URL", "element %d has another login or database than the first: headgate has one for all", i+1)
			return false
		}
		if i == 0 {
			first = s
		}
		r.hosts = append(r.hosts, s.host)
	}
	if r.mode == "+sentinel" { // a login there is that of the Sentinels
		r.sentinelLogin(first.user, first.password)
		if first.db != "" {
			t.failf(r.of+"URL", "Sentinels have no databases")
		}
		return true
	}
	r.user, r.password, r.db = first.user, first.password, first.db
	return true
}

// parseServer reads host:port or a URL. secure becomes true if the URL says so.
func parseServer(text string, secure *bool) (s server, ok bool) {
	scheme, _, isURL := strings.Cut(text, "://")
	if !isURL {
		return server{host: text}, text != "" && !strings.ContainsAny(text, "/@?#,")
	}
	u, err := url.Parse(text)
	if err != nil || strings.Contains(u.Path+u.RawQuery+u.Fragment, "@") || // a part of a password, which nobody may see
		u.Host == "" || strings.Contains(u.Host, ",") || scheme != "redis" && scheme != "rediss" {
		return s, false
	}
	*secure = *secure || scheme == "rediss"
	q := u.Query()
	s = server{host: u.Host, user: u.User.Username(), db: strings.TrimPrefix(u.Path, "/")}
	s.password, _ = u.User.Password()
	for name, field := range map[string]*string{"username": &s.user, "password": &s.password, "db": &s.db} {
		*field = cmp.Or(*field, q.Get(name))
	}
	return s, true
}

// login reads who logs in.
func (r *redisURL) login(t *translation) {
	file := t.text(r.of + "AUTH_FILE")
	if auth := t.text(r.of + "AUTH"); auth != "" {
		if file != "" {
			t.failf(r.of+"AUTH_FILE", "and %sAUTH exclude each other", r.of)
		}
		r.user, r.password = splitLogin(auth)
	}
	if file != "" {
		r.password = ""
		r.params.Set("password_file", file)
	}
	auth := t.text(r.of + "SENTINEL_AUTH")
	switch {
	case auth == "":
	case r.mode != "+sentinel":
		t.warn("%[1]sSENTINEL_AUTH has no effect, because %[1]sTYPE is not SENTINEL", r.of)
	default:
		r.sentinelLogin(splitLogin(auth))
	}
}

// splitLogin reads user:password, or a password alone.
func splitLogin(auth string) (user, password string) {
	user, password, both := strings.Cut(auth, ":")
	if !both {
		return "", auth
	}
	return user, password
}

func (r *redisURL) sentinelLogin(user, password string) {
	if user != "" {
		r.params.Set("sentinel_username", user)
	}
	if password != "" {
		r.params.Set("sentinel_password", password)
	}
}

// tls reads how the servers are verified.
func (r *redisURL) tls(t *translation) {
	r.secure = r.secure || t.on(r.of+"TLS")
	skip := t.on("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION")
	for name, param := range map[string]string{"REDIS_TLS_CLIENT_CERT": "cert", "REDIS_TLS_CLIENT_KEY": "key",
		"REDIS_TLS_CACERT": "ca"} {
		file := t.text(name)
		switch {
		case file == "":
		case !r.secure && (r.of != "REDIS_" || t.on(perSecondOn) && t.on("REDIS_PERSECOND_TLS")): // it is the other's
		case !r.secure:
			t.warn("%s has no effect, because REDIS_TLS is not true: the connection to Redis is not encrypted", name)
		default:
			r.params.Set(param, file)
		}
	}
	if r.secure && (t.text("REDIS_TLS_CLIENT_CERT") == "") != (t.text("REDIS_TLS_CLIENT_KEY") == "") {
		t.failf("REDIS_TLS_CLIENT_CERT", "and REDIS_TLS_CLIENT_KEY go together")
	}
	switch {
	case r.secure && r.socket != "":
		t.failf(r.of+"TLS", "does not go with a Unix socket")
	case skip && r.secure:
		r.params.Set("skip_hostname_verification", "true")
	}
}

// settings reads the rest.
func (r *redisURL) settings(t *translation) {
	if t.set(r.of + "POOL_SIZE") {
		n, _ := strconv.Atoi(t.text(r.of + "POOL_SIZE"))
		if n > leastPool {
			r.params.Set("pool_size", strconv.Itoa(min(n, mostPool)))
		}
	}
	if t.set(r.of + "TIMEOUT") {
		d, _ := time.ParseDuration(t.text(r.of + "TIMEOUT"))
		if d == 0 { // no bound
			d = mostTimeout
		}
		d = max(min(d, mostTimeout), time.Millisecond)
		r.params.Set("dial_timeout", d.String())
		r.params.Set("timeout", d.String())
	}
	prefix := t.text("CACHE_KEY_PREFIX")
	if prefix != "" {
		r.params.Set("prefix", prefix+ownPrefix)
	}
	switch layout := strings.ToLower(t.text("REDIS_LAYOUT")); layout {
	case "headgate":
	case sharedLayout: // the reference's counters are headgate's as well
		r.params.Set("layout", sharedLayout)
		if prefix != "" {
			r.params.Set("cache_key_prefix", prefix)
		}
		if t.set("EXPIRATION_JITTER_MAX_SECONDS") {
			r.params.Set("expiration_jitter", t.text("EXPIRATION_JITTER_MAX_SECONDS"))
		}
	default:
		t.failf("REDIS_LAYOUT", "want headgate or envoy, not %q", layout)
	}
}

// String returns the URL, with its secrets.
func (r *redisURL) String() string {
	scheme := "redis"
	if r.secure {
		scheme = "rediss"
	}
	var b strings.Builder
	b.WriteString(scheme + r.mode)
	if r.socket != "" {
		b.WriteString("+unix")
	}
	b.WriteString("://")
	if r.user != "" || r.password != "" {
		b.WriteString(escape(r.user) + ":" + escape(r.password) + "@")
	}
	b.WriteString(strings.Join(r.hosts, ",") + (&url.URL{Path: r.socket}).EscapedPath())
	if r.mode == "+sentinel" {
		b.WriteString("/" + escape(r.master))
	}
	if r.db != "" {
		b.WriteString("/" + escape(r.db))
	}
	if len(r.params) > 0 {
		b.WriteString("?" + r.params.Encode())
	}
	return b.String()
}

// escape writes every byte that could end a part of a URL as %XX.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
