package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"fmt"
	"strconv"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

var _ backends.Lister = (*Backend)(nil)

// beforeKeys is below the keys of all counters, which begin with a digit, and afterKeys is not.
const beforeKeys, afterKeys = "/", ":"

// List implements [backends.Lister]: keys in their order in the table, of which it reads n rows.
func (b *Backend) List(ctx context.Context, after string, n int) (keys []limit.Key, next string, err error) {
	from := []byte(beforeKeys)
	if after != "" {
		if from, err = base64.RawURLEncoding.DecodeString(after); err != nil ||
			len(from) > len(beforeKeys)+8+2*backends.MaxKeyLen {
			return nil, "", fmt.Errorf("%w: nothing was listed up to %.20q", backends.ErrInvalid, after)
		}
	}
	rows, last := 0, from
	err = b.db.Rows(ctx, b.db.Read, "list keys", b.conf.dialect.page(from, n), func(found *sql.Rows) error {
		var key []byte
		var ends, m, now int64
		if err := found.Scan(&key, &ends, &m, &now); err != nil {
			return err
		}
		rows, last = rows+1, bytes.Clone(key)
		if k, ok := keyOf(key); ok && ends > now {
			keys = append(keys, k)
		}
		return nil
	})
	if err != nil {
		return nil, "", failed(err, false)
	}
	if rows < n || string(last) >= afterKeys {
		return keys, "", nil
	}
	return keys, base64.RawURLEncoding.EncodeToString(last), nil
}

// keyOf takes apart what counterKey has made.
func keyOf(row []byte) (k limit.Key, ok bool) {
	length, rest, ok := bytes.Cut(row, []byte(":"))
	n, err := strconv.Atoi(string(length))
	if !ok || err != nil || n < 0 || n > len(rest) {
		return k, false
	}
	return limit.Key{Group: string(rest[:n]), Limit: string(rest[n:])}, true
}
