//go:build !rlsonly

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/stack"
	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/app/server"
	policystore "github.com/headgate-rls/headgate/policies/sqlstore"
	"github.com/headgate-rls/headgate/slots/sqlstore"
)

// migrateWithin bounds `headgate migrate`.
const migrateWithin = 5 * time.Minute

func migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Migrate the databases of slots, policies and limits to the current schemas",
		Long: `Migrate the databases of slots, policies and limits to the current schemas, and print each
migration that was applied. All schemas may be in one database.

With --print the command changes nothing and prints the SQL of all migrations, for a
database user who may change the schema. headgate continues a schema history of Flyway.`,
		Example: `  headgate migrate --slots postgres://headgate@db/payments
  headgate migrate --backend mysql://headgate@db/limits
  headgate migrate --print --slots oracle:// >schema.sql`,
	}
	format := defineFormat(cmd)
	show := cmd.Flags().Bool("print", false, "print the SQL instead of running it")
	shown := slices.Concat([]string{"backend"}, slotDatabase, policyDatabase)
	return settingsCommand(cmd, shown, func(ctx context.Context, conf *config.Config, log *slog.Logger) error {
		all := schemas(conf, log)
		if len(all) == 0 {
			return inputError{errors.New("no database with a schema: set --slots, --policies or --backend, HEADGATE_SLOTS, " +
				"HEADGATE_POLICIES or HEADGATE_BACKEND, or slots:, policies: or backend: in the --config file; " +
				"redis:// and memory:// need no migration")}
		}
		ctx, cancel := context.WithTimeout(ctx, migrateWithin)
		defer cancel()
		w := format.list(cmd.OutOrStdout())
		defer func() { _ = w.end() }()
		for _, s := range all {
			if err := s.run(ctx, w, *show); err != nil {
				if strings.HasPrefix(err.Error(), "--") { // it names the setting
					return err
				}
				return fmt.Errorf("--%s: %w", s.setting, err)
			}
		}
		return nil
	})
}

// A schema is one of those that headgate keeps in databases.
type schema struct {
	setting string // that says where
	url     string
	print   func(scheme string) (string, error)
	open    func(ctx context.Context) (migrator, error)
}

type migrator interface {
	Migrate(ctx context.Context) (applied []string, err error)
	Close() error
}

// schemas are those that the settings ask for. Not every backend has one.
func schemas(conf *config.Config, log *slog.Logger) []schema {
	backend := conf.Backend
	if !stack.HasSchema(backend) {
		backend = ""
	}
	all := []schema{
		{"slots", conf.Slots.URL, sqlstore.Print, func(context.Context) (migrator, error) {
			return server.OpenDatabase(&conf.Slots, server.MayBeNew, log)
		}},
		{"policies", conf.Policies.URL, policystore.Print, func(context.Context) (migrator, error) {
			return server.OpenPolicies(&conf.Policies, server.MayBeNew, log)
		}},
		{"backend", backend, backendSchema, func(ctx context.Context) (migrator, error) {
			return stack.New(ctx, backend, stack.Options{Log: log})
		}},
	}
	return slices.DeleteFunc(all, func(s schema) bool { return s.url == "" })
}

// backendSchema returns the text that makes the schema in the store of a scheme, such as SQL for "postgres".
func backendSchema(scheme string) (string, error) {
	k, err := backends.KindOf(scheme + ":")
	if err != nil {
		return "", err
	}
	if k.Schema == nil {
		return "", fmt.Errorf("a backend of the scheme %q has no schema", scheme)
	}
	return k.Schema(scheme)
}

// migrated is the answer about one schema, in JSON.
type migrated struct {
	Setting string   `json:"setting"` // that names the database
	Applied []string `json:"applied"`
	SQL     string   `json:"sql,omitempty"` // of all migrations, with --print
}

func (s *schema) run(ctx context.Context, w *lister, show bool) error {
	if show {
		scheme, _, _ := strings.Cut(strings.TrimPrefix(s.url, "jdbc:"), ":")
		text, err := s.print(scheme)
		if err != nil {
			return err
		}
		fmt.Fprint(w.text, text)
		return w.write(migrated{s.setting, []string{}, text})
	}
	db, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	applied, err := db.Migrate(ctx)
	if err != nil {
		return err
	}
	for _, name := range applied {
		fmt.Fprintf(w.text, "%s: applied %s\n", s.setting, name)
	}
	if len(applied) == 0 {
		fmt.Fprintf(w.text, "%s: the schema is up to date\n", s.setting)
	}
	return w.write(migrated{Setting: s.setting, Applied: append([]string{}, applied...)})
}
