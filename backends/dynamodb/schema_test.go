package dynamodb

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/dbtest"
	"github.com/headgate-rls/headgate/test/testenv"
)

func tableAt(t *testing.T, name, parameters string) *Backend {
	return open(t, testenv.DynamoTable(testenv.SharedDynamoDB(t).URL, name)+parameters)
}

// TestMigrate makes the table once, as the URL says.
func TestMigrate(t *testing.T) {
	for name, c := range map[string]struct {
		parameters string
		mode       types.BillingMode
		writes     int64
	}{
		"schema-on-demand":   {"", types.BillingModePayPerRequest, 0},
		"schema-provisioned": {"&read_units=5&write_units=7", types.BillingModeProvisioned, 7},
	} {
		b := tableAt(t, name, c.parameters)
		dbtest.WantError(t, b.Ping(soon(t)), "headgate migrate --backend URL")
		out := make([]limit.Verdict, 1)
		b.Take(soon(t), []limit.Request{one(perHour, "x", 1)}, out)
		if err := out[0].Err; !errors.Is(err, backends.ErrUnavailable) || !errors.Is(err, backends.ErrNotApplied) ||
			!strings.Contains(err.Error(), "headgate migrate") {
			t.Errorf("%s: without a table: %v", name, err)
		}
		applied, err := b.Migrate(soon(t))
		if want := []string{"table " + name, "time to live of " + name}; err != nil || !slices.Equal(applied, want) {
			t.Errorf("applied %q (%v), want %q", applied, err, want)
		}
		if applied, err = b.Migrate(soon(t)); err != nil || len(applied) > 0 {
			t.Errorf("again: applied %q (%v)", applied, err)
		}
		check(t, b.Ping(soon(t)))
		take(t, b, one(perHour, "x", 1))
		there, err := b.describe(soon(t))
		check(t, err)
		mode := types.BillingModeProvisioned
		if there.BillingModeSummary != nil {
			mode = there.BillingModeSummary.BillingMode
		}
		if n := aws.ToInt64(there.ProvisionedThroughput.WriteCapacityUnits); mode != c.mode || n != c.writes {
			t.Errorf("%s: %v with %d units, want %v with %d", name, mode, n, c.mode, c.writes)
		}
	}
}

// TestMigrateRefusesForeignTables: a table of somebody else is not headgate's to change.
func TestMigrateRefusesForeignTables(t *testing.T) {
	b := tableAt(t, "foreign", "")
	_, err := b.client.api.CreateTable(soon(t), &dynamodb.CreateTableInput{
		TableName: aws.String("foreign"), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema: []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	})
	check(t, err)
	_, err = b.Migrate(soon(t))
	dbtest.WantError(t, err, "the table foreign is not one of headgate", "id HASH")
	if switched, err := b.expire(soon(t)); err != nil || !switched {
		t.Errorf("time to live was changed before: %v", err)
	}
}

// TestPingTellsWhetherWaitingHelps: Ping returns ErrMisconfigured if the table is missing or the key is unknown.
func TestPingTellsWhetherWaitingHelps(t *testing.T) {
	b := tableAt(t, "absent", "")
	if err := b.Ping(soon(t)); !errors.Is(err, backends.ErrMisconfigured) || !errors.Is(err, backends.ErrUnavailable) {
		t.Errorf("without a table: %v", err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "no-such-key")
	stranger := tableAt(t, "absent", "")
	_, err := stranger.Migrate(soon(t))
	for _, err := range []error{err, stranger.Ping(soon(t))} {
		if !errors.Is(err, backends.ErrMisconfigured) {
			t.Errorf("with a wrong key: %v", err)
		}
	}
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", "")
	nobody := open(t, "dynamodb://absent?region=eu-west-1&endpoint=http://127.0.0.1:1")
	if err := nobody.Ping(soon(t)); err == nil || errors.Is(err, backends.ErrMisconfigured) {
		t.Errorf("where nobody listens: %v", err)
	}
}

// TestItemsExpire: each item says when DynamoDB may delete it, an hour after it has ended.
func TestItemsExpire(t *testing.T) {
	b := open(t, newTable(t))
	take(t, b, one(perHour, "x", 1))
	name := counter(limit.Key{Group: "x"})
	items, _, _, err := b.client.read(soon(t), []primary{name})
	check(t, err)
	ends := int64(noon)/1e6/3600*3600 + 3600
	if got := integerOf(items[name], attrTTL); got < ends+endedFor || got > ends+endedFor+7200+1 {
		t.Errorf("the item goes at %d, its window ends at %d", got, ends)
	}
}

// TestPrint: the printed table is the one that Migrate makes.
func TestPrint(t *testing.T) {
	text, err := Print(Scheme)
	check(t, err)
	for _, part := range []string{"AttributeName: K, KeyType: HASH", "AttributeName: R, KeyType: RANGE",
		"AttributeName: K, AttributeType: B", "{AttributeName: T, Enabled: true}"} {
		if !strings.Contains(text, part) {
			t.Errorf("the template lacks %q", part)
		}
	}
}
