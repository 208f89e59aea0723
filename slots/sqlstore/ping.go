package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate-rls/headgate/slots"
)

// Ping implements slots.Store. It also sees to it that there are PoolMin
// connections, in the background.
func (db *DB) Ping(ctx context.Context) error {
	const op = "ping the database"
	_, err := db.Generation(ctx)
	if err != nil {
		return noSchema(op, err)
	}
	missing, err := db.sql.Missing(ctx, schema())
	if err != nil {
		return noSchema(op, storeError(err))
	}
	if len(missing) > 0 {
		return &slots.StoreError{Kind: slots.Failed, Op: op,
			Err: fmt.Errorf("the schema lacks %s: "+howToMigrate, missing[0])}
	}
	db.sql.WarmUp()
	return nil
}

const howToMigrate = "run headgate migrate, or have an administrator run what headgate migrate --print prints"

// noSchema says what to do if the tables that each database has are not there.
func noSchema(op string, err error) error {
	if !errors.As(err, new(*schemaError)) {
		return err
	}
	return &slots.StoreError{Kind: slots.Failed, Op: op,
		Err: fmt.Errorf("the tables of slots are missing: "+howToMigrate+" (%w)", err)}
}
