package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// TestForeignItems: an item that is not headgate's fails the requests that need it, and stays.
func TestForeignItems(t *testing.T) {
	b := open(t, newTable(t))
	for i, item := range []attributes{
		{"color": binaryValue("blue")},
		{attrVersion: integer(1), attrWriter: binaryValue("w"), attrState: binaryValue("no state")},
		{attrVersion: integer(0), attrWriter: binaryValue("w"), attrState: binaryValue("\x01\x00\x00\x00")},
		{attrVersion: binaryValue("one"), attrWriter: binaryValue("w"), attrState: binaryValue("\x01\x00\x00\x00")},
		{attrVersion: integer(1), attrState: binaryValue("\x01\x00\x00\x00")},
		{attrVersion: integer(1), attrWriter: binaryValue("w"), attrState: binaryValue("\x02of a later version")},
		{attrVersion: integer(1), attrWriter: binaryValue("w"), attrState: binaryValue("\x01damaged")},
	} {
		later := i == 5 || i == 1 // "no state" begins as a state of version 110 does
		group := fmt.Sprint("foreign", i)
		name := counter(limit.Key{Group: group})
		item[attrKey], item[attrRow] = binaryValue(name.key), binaryValue(name.row)
		check(t, b.writeEach(soon(t), []types.WriteRequest{{PutRequest: &types.PutRequest{Item: item}}}))
		for range 2 { // the second time the item is known
			out := make([]limit.Verdict, 4)
			b.Take(soon(t), []limit.Request{
				one(perHour, group, 1), several(1, group, "good"), several(1, "good", "better"), one(perHour, group, 0),
			}, out)
			for j, bad := range []bool{true, true, false, true} {
				if err := out[j].Err; bad != errors.Is(err, backends.ErrCorrupt) || bad != errors.Is(err, backends.ErrNotApplied) ||
					!bad && err != nil {
					t.Errorf("item %d, request %d: error %v", i, j, err)
				}
				if err := out[j].Err; errors.Is(err, backends.ErrLater) != (bad && later) {
					t.Errorf("item %d, request %d: of a later version? %v", i, j, err)
				}
			}
		}
		items, _, _, err := b.client.read(soon(t), []primary{name})
		check(t, err)
		if got := items[name]; len(got) != len(item) {
			t.Errorf("item %d has changed: %v", i, got)
		}
	}
	if n := used(t, b, "good"); n != 14 {
		t.Errorf("the requests beside them were recorded %d times, want 14", n)
	}
}

// TestMemoryIsBounded: whatever keys clients think of, what is remembered of them has an end.
func TestMemoryIsBounded(t *testing.T) {
	const most = 1 << 20
	c := newCache(most)
	long := make([]byte, 250)
	for i := range 20_000 {
		e, err := c.take(context.Background(), limit.Key{Group: fmt.Sprint(i, string(long))})
		check(t, err)
		e.known = item{version: 1, writer: "w", state: make([]byte, i%2000)}
		c.give(e)
		if n := c.size(); n > most+3000 {
			t.Fatalf("after %d keys %d bytes are remembered", i, n)
		}
	}
	real := 0
	for _, entries := range []map[limit.Key]*entry{c.young, c.old} {
		for k, e := range entries {
			real += len(k.Group) + e.known.size() + entrySize
		}
	}
	if real > most+3000 || real < most/4 {
		t.Errorf("%d bytes are remembered, want at most %d", real, most)
	}
	hot := limit.Key{Group: "hot"}
	e, err := c.take(context.Background(), hot)
	check(t, err)
	for c.old[hot] == nil {
		c.grow(most / 4)
	}
	c.give(e)
	if c.entry(hot) != e {
		t.Error("a key that is used is forgotten")
	}
}

// TestTurns: a caller that waits for a turn leaves when its time is over.
func TestTurns(t *testing.T) {
	c := newCache(1 << 20)
	e, err := c.take(context.Background(), limit.Key{})
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.take(ctx, limit.Key{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	c.give(e)
	if _, err := c.take(context.Background(), limit.Key{}); err != nil {
		t.Error(err)
	}
}
