package config

import (
	"github.com/headgate-rls/headgate/internal/kit/settings"
	"github.com/headgate-rls/headgate/policies"
)

// Policies has the settings of policies in a database.
type Policies struct {
	URL      string
	Username string
	Password string
	Migrate  bool
	Metrics  []string
}

// settings returns the rows of the table for policies.
func (c *Policies) settings() []settings.Setting {
	used := func() bool { return c.URL != "" }
	keys := func(list []string) error {
		_, err := policies.ParsePatterns(list)
		return err
	}
	return []settings.Setting{
		settings.Row("policies", &c.URL, "",
			"`URL` of the database with policies, which take the place of limits of rules: sqlite:FILE, "+
				"postgres://…, mysql://…, oracle://…; empty: disabled; see docs/policies.md", settings.URLWithSecret),
		settings.Row("policies-username", &c.Username, "",
			"`name` to log into the database of policies with, if the URL has none"),
		settings.Row("policies-password", &c.Password, "", "`secret` that goes with it", settings.Secret),
		settings.Row("policies-migrate", &c.Migrate, true,
			"migrate the schema of policies at start; if disabled, run headgate migrate"),
		settings.Row("policy-metrics", &c.Metrics, nil,
			"`key` of a policy, such as user:bigcustomer, that gets series of its own in the metrics, or the "+
				"beginning of keys with * after it; may be repeated; each rule has series for 100 keys at most",
			settings.Needs(used, "needs --policies"), settings.Check(keys)),
	}
}
