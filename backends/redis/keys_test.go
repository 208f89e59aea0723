package redis

import (
	"testing"

	"github.com/headgate-rls/headgate/limit"
)

// TestKeysAreReadAsWritten: List finds the counter of each key, and groups of one partition are in one slot.
func TestKeysAreReadAsWritten(t *testing.T) {
	k := &keys{layoutRow: &layouts[0], prefix: "headgate:"}
	part := func(text string) []byte { return limit.AppendPart(nil, text) }
	slots := map[int]bool{}
	for _, rest := range []string{"openai", "azure}", "%7D", ""} {
		group := limit.GroupIn(part("ai}%"), part(rest))
		key := limit.Key{Group: group, Limit: "f#0"}
		if got, ok := k.parse(k.ownKey(key)); !ok || got != key {
			t.Errorf("%q is read as %q", k.ownKey(key), got)
		}
		op := &limit.Op{Key: key}
		slots[k.slotOf(op, 0)], slots[slotOf(k.ownKey(key))] = true, true
	}
	if len(slots) != 1 {
		t.Errorf("groups of one partition are in the slots %v", slots)
	}
	for _, group := range []string{"2:ai", "", "%", "=a}b", "+broken"} {
		key := limit.Key{Group: group, Limit: "f"}
		if got, ok := k.parse(k.ownKey(key)); group != "+broken" && (!ok || got != key) {
			t.Errorf("%q is read as %q", k.ownKey(key), got)
		}
	}
}
