//go:build !rlsonly

package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/internal/kit/settings"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/test/documented"
	"github.com/headgate-rls/headgate/test/wired"
)

func TestProblemsOfFeaturesNameTheirPlace(t *testing.T) {
	for _, r := range []refused{
		{name: "negative time", args: []string{"--slots-keep", "-1h"},
			want: []string{"--slots-keep: -1h0m0s: must not be negative"}},
		{name: "slots that nobody could use", args: []string{"--slots-auth"},
			want: []string{"--slots-auth: needs --admin-token or --admin-client-ca, or --admin-jwks"}},
		{name: "metrics of policies without policies", args: []string{"--policy-metrics", "user:a"},
			want: []string{"--policy-metrics: needs --policies"}},
		{name: "bad keys of policies", args: []string{"--policies", "sqlite:p.db", "--policy-metrics", "user:*:b"},
			want: []string{`--policy-metrics: "user:*:b": a * may only be at the end`}},
	} {
		t.Run(r.name, r.check)
	}
}

// TestEveryFieldIsASetting: each field of Config that is its own has one row in the table of
// settings, and the documentation has each row.
func TestEveryFieldIsASetting(t *testing.T) {
	c := new(Config)
	rows := map[any]string{}
	table := documented.Settings(Settings())
	for _, s := range c.table() {
		if other := rows[s.Field]; other != "" {
			t.Errorf("--%s and --%s fill the same field", other, s.Name)
		}
		rows[s.Field] = s.Name
		if s.Help == "" || !strings.Contains(table, "`--"+s.Name+"`") ||
			!strings.Contains(table, "`"+Settings().EnvName(s.Name)+"`") {
			t.Errorf("--%s is not in the documentation", s.Name)
		}
	}
	rows[&c.Warnings], rows[&c.Admin.Named] = "not a setting", "variables of their own"
	var fields func(v reflect.Value)
	fields = func(v reflect.Value) {
		for i := range v.NumField() {
			switch f := v.Field(i); {
			case f.Type() == reflect.TypeFor[ratelimit.Config](), f.Type() == reflect.TypeFor[slots.Settings]():
				// A feature's own, which has more than settings.
			case !v.Type().Field(i).IsExported():
				// Nobody else can set it.
			case f.Kind() == reflect.Struct:
				fields(f)
			case rows[f.Addr().Interface()] == "":
				t.Errorf("the field %s of unknown setting %s", v.Type().Field(i).Name, v.Type())
			}
		}
	}
	fields(reflect.ValueOf(c).Elem())
}

// Names that another program has for settings go on working.
func TestAliasesSetTheSameSettings(t *testing.T) {
	file := `
rate-limiter:
  default-config-name: payments
  max-windows-in-chunk: 50
  headroom-windows: 100
quarkus:
  datasource:
    db-kind: postgresql
    jdbc:
      url: jdbc:postgresql://db:5432/payments
      max-size: 40
    username: rate_limiter
quarkus.flyway.migrate-at-start: false
`
	env := map[string]string{"RATE_LIMITER_MAX_CHUNKS_TO_SEARCH": "5", "QUARKUS_DATASOURCE_PASSWORD": "secret",
		"QUARKUS_DATASOURCE_JDBC_MIN_SIZE":  "7",
		"RATE_LIMITER_MAX_WINDOWS_IN_CHUNK": "60", "HEADGATE_SLOTS_EXTRA_CHUNKS": "6"}
	c, err := resolve(t, file, env, "--slots-pool-max", "50")
	if err != nil {
		t.Fatal(err)
	}
	s := c.Slots
	if s.Scheduler.DefaultConfig != "payments" || s.Scheduler.Chunk != 60 || s.Scheduler.Chunks != 6 ||
		s.URL != "jdbc:postgresql://db:5432/payments" || s.PoolMin != 7 ||
		s.PoolMax != 50 || s.Username != "rate_limiter" || s.Password != "secret" || s.Migrate {
		t.Errorf("%+v", s)
	}
	if len(c.Warnings) != 2 || !strings.Contains(c.Warnings[0], "rate-limiter.headroom-windows is ignored") {
		t.Errorf("%q", c.Warnings)
	}
	for file, want := range map[string]string{
		"rate-limiter:\n  max-windows: 3\n": "conf.yaml:2:3: rate-limiter.max-windows: unknown setting",
		"quarkus:\n  datasource:\n    username: [a]\n": "conf.yaml:3:5: quarkus.datasource.username: " +
			"takes a plain value",
		"quarkus:\n  datasource:\n    jdbc:\n      max-size: x\n": `conf.yaml:4:7: quarkus.datasource.jdbc.max-size: ` +
			`"x" is not a valid int`,
	} {
		if _, err := resolve(t, file, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", file, err, want)
		}
	}
}

func TestShownFeaturesHideSecrets(t *testing.T) {
	text := shown(t, "--slots", "mysql://u:ge@heim@h/db?password=geheim", "--slots-password", "geheim",
		"--policies-password", "geheim")
	for _, want := range []string{"slots-password=***\n", "policies-password=***\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}

// TestSettingsReachWhatDecides: each setting of these groups changes how the engine or the scheduler is configured.
func TestSettingsReachWhatDecides(t *testing.T) {
	wired.Check(t, func() (settings.Program, func() any) {
		c := new(Config)
		p := c.program()
		p.Rows = slices.DeleteFunc(p.Rows, func(row settings.Setting) bool {
			return !slices.Contains([]string{"What is decided", "What answers have", "Slots"}, row.Group) &&
				!slices.Contains([]string{"policy-metrics", "log-keys", "owner-grace"}, row.Name)
		})
		return p, func() any {
			headers := *c
			headers.ResponseHeaders = true // else three headers have no names
			return []any{c.Decisions(), headers.Decisions(), c.Slots.Settings()}
		}
	}, "backend-required", "replicas", // of the server, and of the store's layers
		"slots", "slots-username", "slots-password", "slots-pool-min", "slots-pool-max", "slots-migrate", "slots-auth",
		"slots-seed")
	// The scheduler's own zero is its default.
	if none := (&Slots{}).Settings().Chunks; none >= 0 {
		t.Errorf("--slots-extra-chunks=0 makes %d", none)
	}
}
