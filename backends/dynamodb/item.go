package dynamodb

import (
	"fmt"
	"math"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/headgate-rls/headgate/limit"
)

// The attributes of an item.
const (
	attrKey     = "K" // the partition: what kind of item this is, and of which group or table
	attrRow     = "R" // within it: the limit, or the key of a row
	attrVersion = "V" // counts the writes, from 1
	attrWriter  = "W" // who has written it last, and at which of its writes: 16 bytes, never twice the same
	attrState   = "S" // the state of a counter, or the value of a row
	attrEnds    = "E" // of a row: when it ends, in µs since 1970
	attrTTL     = "T" // when DynamoDB may delete the item, in seconds since 1970
)

// What the values of attrKey begin with.
const (
	counterItems = "c:"
	claimItems   = "n:"
	rowItems     = "r:"
	pingItems    = "p:"
)

// An attributes is an item, or its key, as the SDK has it.
type attributes = map[string]types.AttributeValue

// A primary names an item.
type primary struct{ key, row string }

// counter names the item of a counter. Neither half may be empty.
func counter(k limit.Key) primary { return primary{counterItems + k.Group, ":" + k.Limit} }

func (p primary) attributes() attributes {
	return attributes{attrKey: binaryValue(p.key), attrRow: binaryValue(p.row)}
}

// primaryOf reads the names of an item.
func primaryOf(a attributes) primary {
	return primary{string(bytesOf(a, attrKey)), string(bytesOf(a, attrRow))}
}

// An item is what the table has under a key, or had when it was seen last. The zero item is not
// there.
type item struct {
	version int64
	writer  string
	state   []byte // nobody changes it
}

func (i *item) there() bool { return i.version > 0 }

// size is what remembering the item takes, in bytes.
func (i *item) size() int { return len(i.writer) + len(i.state) }

// readItem reads what DynamoDB returned, which is nothing where nothing is. Its error says that no
// version of headgate writes this.
func readItem(a attributes) (item, error) {
	if len(a) == 0 {
		return item{}, nil
	}
	i := item{writer: string(bytesOf(a, attrWriter)), state: bytesOf(a, attrState)}
	n, ok := a[attrVersion].(*types.AttributeValueMemberN)
	if !ok {
		return item{}, fmt.Errorf("an item has no number %s", attrVersion)
	}
	var err error
	if i.version, err = strconv.ParseInt(n.Value, 10, 64); err != nil || i.version < 1 || i.version == math.MaxInt64 ||
		i.writer == "" {
		return item{}, fmt.Errorf("an item has the %s %q, and %d bytes of %s", attrVersion, n.Value,
			len(i.writer), attrWriter)
	}
	return i, nil
}

func binaryValue(s string) types.AttributeValue {
	return &types.AttributeValueMemberB{Value: []byte(s)}
}

func integer(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// bytesOf returns an attribute of bytes, or nothing.
func bytesOf(a attributes, name string) []byte {
	if b, ok := a[name].(*types.AttributeValueMemberB); ok {
		return b.Value
	}
	return nil
}

// integerOf returns an attribute that is a whole number, or 0.
func integerOf(a attributes, name string) int64 {
	if n, ok := a[name].(*types.AttributeValueMemberN); ok {
		i, _ := strconv.ParseInt(n.Value, 10, 64)
		return i
	}
	return 0
}

// endedFor is how long an item outlives what it says, in seconds: clocks of callers may differ from
// DynamoDB's.
const endedFor = 3600

// ttl is the attribute by which DynamoDB deletes an item that ends at this instant.
func ttl(ends limit.Instant) types.AttributeValue {
	return integer(int64(ends)/1_000_000 + 1 + endedFor)
}
