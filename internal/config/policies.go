package config

// Policies has the settings of policies in a database.
type Policies struct {
	URL      string
	Username string
	Password string
	Migrate  bool
}

// settings returns the rows of the table for policies.
func (c *Policies) settings() []setting {
	return []setting{
		row("policies", &c.URL, "", nil, "`URL` of the database with policies, which take the place of limits of rules: sqlite:FILE, postgres://…, mysql://…, oracle://…; empty: disabled; see docs/policies.md").hiding(inURL),
		row("policies-username", &c.Username, "", nil, "`name` to log into the database of policies with, if the URL has none"),
		row("policies-password", &c.Password, "", nil, "`secret` that goes with it").hiding(whole),
		row("policies-migrate", &c.Migrate, true, nil, "migrate the schema of policies at start; if disabled, run headgate migrate"),
	}
}
