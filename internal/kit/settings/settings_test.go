package settings

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// A toy is a program with one setting of each kind.
type toy struct {
	file, name, word, token string
	on                      bool
	number                  int
	wait                    time.Duration
	list                    []string
}

func (c *toy) program() Program {
	return Program{Prefix: "TOY_SHOP", Rows: []Setting{
		Config(&c.file),
		Row("name", &c.name, "x", "a `name`", Also("other.name")),
		Row("word", &c.word, "", "", OneOf("", "a", "b", "c")),
		Row("token", &c.token, "", "", Token, Secret),
		Row("on", &c.on, false, "", Needs(func() bool { return c.name == "shop" }, "needs --name shop")),
		Row("number", &c.number, 3, "", Between(1, 9)),
		Row("wait", &c.wait, time.Second, "", AtLeast(time.Second), AtMost(time.Minute)),
		Row("list", &c.list, nil, ""),
	}}
}

func (c *toy) resolve(t *testing.T, file string, environ []string, args ...string) (warnings []string, err error) {
	t.Helper()
	if file != "" {
		c.file = filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(c.file, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", c.file)
	}
	fs := pflag.NewFlagSet("toy", pflag.ContinueOnError)
	c.program().Define(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c.program().Resolve(fs, environ, nil)
}

func TestFlagsBeatTheEnvironmentAndThatTheFile(t *testing.T) {
	var c toy
	warnings, err := c.resolve(t, "word: a\nnumber: 7\nother: {name: file}\nlist: [p, q]\n",
		[]string{"TOY_SHOP_NUMBER=8", "OTHER_NAME=shop", "TOY_SHOP_TOPCI=1", "TOY_SHOP_SERVICE_HOST=10.0.0.1",
			"TOY_SHOP_NMAE=1"},
		"--on", "--wait", "2s")
	if err != nil || c.word != "a" || c.number != 8 || c.name != "shop" || !c.on ||
		c.wait != 2*time.Second || len(c.list) != 2 {
		t.Errorf("%+v: %v", c, err)
	}
	got := strings.Join(warnings, "\n")
	if strings.Count(got, "has no effect") != 2 || !strings.Contains(got, "did you mean TOY_SHOP_NAME?") {
		t.Errorf("got %q", warnings)
	}
}

func TestChecks(t *testing.T) {
	for arg, want := range map[string]string{
		"--word=d":          `--word: must be a, b or c, not "d"`,
		"--token=short":     "--token: has 5 characters",
		"--on":              "--on: needs --name shop",
		"--number=10":       "--number: 10 is outside 1 to 9",
		"--wait=1ms":        "--wait: must be at least 1s",
		"--wait=2m":         "--wait: 2m0s is more than 1m0s",
		"--wait=-1s":        "--wait: -1s: must not be negative",
		"--config=/no/file": "--config: read configuration: /no/file: no such file",
	} {
		_, err := new(toy).resolve(t, "", nil, arg)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "short") {
			t.Errorf("%s: %v, want %s", arg, err, want)
		}
	}
}

// TestKeysURL: nobody on the way can answer for a URL of keys, and the error tells no password.
func TestKeysURL(t *testing.T) {
	for url, want := range map[string]string{
		"https://idp.example/keys": "", "http://127.0.0.1:1/keys": "", "http://[::1]/keys": "", "http://localhost/": "",
		"http://idp.example/keys": "https://", "ftp://idp.example/keys": "https://",
		"https://user:geheim@idp.example/": "password", "https://": "no URL",
	} {
		err := KeysURL(url)
		if text := fmt.Sprint(err); (err == nil) != (want == "") || !strings.Contains(text, want) ||
			strings.Contains(text, "geheim") {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}

// TestDurationsInTheLogHaveUnits in every format.
func TestDurationsInTheLogHaveUnits(t *testing.T) {
	for format, want := range map[string]string{"text": "retry_after=1.5s", "json": `"retry_after":"1.5s"`} {
		var out strings.Builder
		(&Log{Level: "info", Format: format}).Logger(&out, nil).Info("request refused", "retry_after", 1500*time.Millisecond)
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: %s", format, &out)
		}
	}
}
