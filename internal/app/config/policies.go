package config

import "github.com/headgate-rls/headgate/policies"

// Policies has the settings of policies in a database.
type Policies struct {
	URL      string
	Username string
	Password string
	Migrate  bool
	Metrics  []string
}

// settings returns the rows of the table for policies.
func (c *Policies) settings() []setting {
	needed := func() bool { return len(c.Metrics) == 0 || c.URL != "" }
	keys := func(list []string) error {
		_, err := policies.ParsePatterns(list)
		return err
	}
	return []setting{
		row("policies", &c.URL, "", nil, "`URL` of the database with policies, which take the place of limits of rules: sqlite:FILE, postgres://…, mysql://…, oracle://…; empty: disabled; see docs/policies.md").hiding(inURL),
		row("policies-username", &c.Username, "", nil, "`name` to log into the database of policies with, if the URL has none"),
		row("policies-password", &c.Password, "", nil, "`secret` that goes with it").hiding(whole),
		row("policies-migrate", &c.Migrate, true, nil, "migrate the schema of policies at start; if disabled, run headgate migrate"),
		row("policy-metrics", &c.Metrics, nil, all(require[[]string](needed, "needs --policies"), keys),
			"`key` of a policy, such as user:bigcustomer, that gets series of its own in the metrics, or the beginning of keys with * after it; may be repeated; each rule has series for 100 keys at most"),
	}
}
