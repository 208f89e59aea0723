package sqlstore

import (
	"bytes"
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/limit"
)

// Parts of long logs, where placeholders are question marks and a statement is sent as a text.

// maxUnion bounds the queries of a UNION.
const maxUnion = 200

// markedParts are what a dialect without arrays has of parts.
func (d *dialect) markedParts() {
	d.oldest = markedOldest
	d.parts = func(of []part) []sqldb.Query { return united(eachKey("SELECT K, PART", of)) }
	d.dropParts = func(all []part) []sqldb.Query { return eachKey("DELETE", all) }
	d.addParts = func(all []part) sqldb.Query {
		q := sqldb.Query{Text: "REPLACE INTO HEADGATE_LOG (K, LAST_US, PART) VALUES " + sqldb.Repeated("(?,?,?)", len(all))}
		for i := range all {
			q.Args = append(q.Args, all[i].key, all[i].last, all[i].state)
		}
		return q
	}
}

func markedOldest(of []part) []sqldb.Query {
	var all []sqldb.Query
	for i := range of {
		all = append(all, sqldb.Query{Args: []any{of[i].key},
			Text: "SELECT K, PART FROM (SELECT K, PART FROM HEADGATE_LOG WHERE K = ? ORDER BY LAST_US LIMIT 2) AS L"})
	}
	return united(all)
}

// eachKey makes a statement for the parts of each key, which are side by side.
func eachKey(what string, of []part) (all []sqldb.Query) {
	for len(of) > 0 {
		n := 1
		for n < len(of) && bytes.Equal(of[n].key, of[0].key) {
			n++
		}
		q := sqldb.Query{Text: what + " FROM HEADGATE_LOG WHERE K = ? AND LAST_US IN (" + sqldb.Repeated("?", n) + ")",
			Args: []any{of[0].key}}
		for i := range of[:n] {
			q.Args = append(q.Args, of[i].last)
		}
		all, of = append(all, q), of[n:]
	}
	return all
}

// united makes one of many queries, which would take a round trip each.
func united(queries []sqldb.Query) (all []sqldb.Query) {
	for len(queries) > 0 {
		n := min(len(queries), maxUnion)
		var texts []string
		var args []any
		for _, q := range queries[:n] {
			texts, args = append(texts, q.Text), append(args, q.Args...)
		}
		all, queries = append(all, sqldb.Query{Text: strings.Join(texts, " UNION ALL "), Args: args}), queries[n:]
	}
	return all
}

// A row is what is written under one key.
type row struct {
	key   []byte
	state []byte
	at    int64 // these three are for people who read the table
	n, m  int64
	ends  limit.Instant // when the row may go

	add, gone []part // of a log: what is written beside it, and deleted
}

// A part has old records of a log, up to an instant.
type part struct {
	key   []byte
	last  int64
	state []byte
}

// counterKey is the key of a counter's row: two different counters have different ones. It begins
// with a digit.
func counterKey(k limit.Key) []byte {
	b := make([]byte, 0, len(k.Group)+len(k.Limit)+4)
	return append(limit.AppendPart(b, k.Group), k.Limit...)
}

// position is where a key is among sorted ones, or -1.
func position(keys [][]byte, key []byte) int {
	i, ok := slices.BinarySearchFunc(keys, key, bytes.Compare)
	if !ok {
		return -1
	}
	return i
}
