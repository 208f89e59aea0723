package server

import (
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/backends/stack"
	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/kit/settings"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/test/random"
)

// storeURLs are the forms of URLs that may have a password, at PASSWORD.
var storeURLs = []string{
	"redis://:PASSWORD@127.0.0.1:1/0", "redis://u:PASSWORD@h", "rediss://u:PASSWORD@h:1?timeout=1s",
	"redis+sentinel://u:PASSWORD@a,b/m", "redis+sentinel://a,b/m?sentinel_password=PASSWORD",
	"redis+cluster://:PASSWORD@a:1,b:2", "rediss+cluster://:PASSWORD@a", "unix://:PASSWORD@/tmp/s",
	"postgres://u:PASSWORD@h/d", "postgresql://u:PASSWORD@a,b:2/d?sslmode=disable",
	"postgres://h/d?user=u&password=PASSWORD",
	"jdbc:postgresql://u:PASSWORD@h:1/d", "jdbc:postgresql://h/d?password=PASSWORD&user=u",
	"mysql://u:PASSWORD@h/d", "mariadb://u:PASSWORD@a,b/d?tls=true", "mysql://h/d?user=u&password=PASSWORD",
	"oracle://u:PASSWORD@h/s", "jdbc:oracle:thin:u/PASSWORD@h:1:S", "jdbc:oracle:thin:u/PASSWORD@//h:1/s",
	"dynamodb://u:PASSWORD@t", "memory://u:PASSWORD@h", "nothing://u:PASSWORD@h", "redis:u:PASSWORD@h",
}

// parts are two parts of a password: no error may have any of them.
const firstPart, lastPart = "mArKeRa", "mErKeRb"

// awkward are pieces of passwords that a reader of URLs may take for something else.
var awkward = []string{"", "/", "?", "#", "@", ":", "%", "%zz", "[", "]", " ", "&", "\\", ";", ",", "\x00",
	"://", "@/", "@h/", "@h?", "@h#", "/@", "@h:1/0?x=", "?password=", "1/", "ä", "\"", "'", "+", "=", "@h/d?sslmode=",
	"@:1/d?a&", "@[", "@h:x/", "%2F@%", "@a,b/", "///", "?#", "#?", "@h/0?timeout=", "?timeout=", "?user=", "'='"}

// TestNoErrorTellsAPassword: no error of a store's URL, and nothing that is shown of it, has a part of its password,
// whatever is in the password, and however wrong the URL is. This is no fuzz target: the stores' drivers are so large
// that an instrumented program tries 1,000 URLs a minute, where this one tries as many in a tenth of a second.
func TestNoErrorTellsAPassword(t *testing.T) {
	program := config.Settings() // building the table for each URL would be most of the work
	for _, form := range storeURLs {
		for _, middle := range awkward {
			for _, after := range []string{"", "?x=1", "/x"} {
				tellsNoPassword(t, program, form, middle, after)
			}
		}
	}
	r := random.Rand(t, 0)
	piece := func() string {
		if r.IntN(8) == 0 {
			return string([]byte{byte(r.Uint32())})
		}
		return awkward[r.IntN(len(awkward))]
	}
	for range random.Times(1_000, 200_000) {
		middle, after := piece(), piece()
		for range r.IntN(4) {
			middle += piece()
		}
		tellsNoPassword(t, program, storeURLs[r.IntN(len(storeURLs))], middle, after)
	}
}

// tellsNoPassword opens a store at form, whose password has middle within, followed by after.
func tellsNoPassword(t *testing.T, program settings.Program, form, middle, after string) {
	const what = "PASSWORD"
	if strings.Contains(form, "="+what) && strings.ContainsAny(middle, "&#") {
		return // what follows is another parameter, or none of the query
	}
	text := strings.Replace(form, what, firstPart+middle+lastPart, 1) + after
	tells := func(where, said string) {
		if strings.Contains(said, firstPart) || strings.Contains(said, lastPart) {
			t.Errorf("%q: %s tells a part of the password: %s", text, where, said)
		}
	}
	if _, err := stack.Caps(text); err != nil {
		tells("the error", err.Error())
	}
	for _, c := range []sqldb.Config{{URL: text}, {URL: text, Username: "u", Password: "p"}} {
		if db, err := sqldb.Open(c); err != nil {
			tells("the error of a database", err.Error())
		} else {
			tells("the address of a database", db.Address)
			_ = db.Close()
		}
	}
	tells("the command line", strings.Join(program.Hide([]string{"--backend", text, "--slots=" + text}), " "))
}

// TestHiddenArguments: what a command line shows of secrets.
func TestHiddenArguments(t *testing.T) {
	args := []string{"headgate", "serve", "--admin-token", "secret", "--backend=redis://:p@ss/w0rd@h?x=1", "--rules", "r",
		"--slots", "postgres://h/d?user=a@b&password=x@y", "--xds-header", "a: secret", "--slots-password"}
	want := "headgate serve --admin-token *** --backend=redis://:***@h?x=1 --rules r " +
		"--slots postgres://h/d?user=a@b&password=*** --xds-header *** --slots-password"
	if got := strings.Join(config.Settings().Hide(args), " "); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if args[3] != "secret" {
		t.Error("the arguments themselves are changed")
	}
	_ = settings.Program{}.Hide(nil)
}
