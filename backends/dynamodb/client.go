package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/logging"

	"github.com/headgate-rls/headgate/limit"
)

// A client makes single calls for one table: it does not repeat any.
type client struct {
	api       *dynamodb.Client
	table     *string
	transport *http.Transport
	calls     *atomic.Int64
}

// dialTimeout bounds the wait for a connection, whatever time a call has.
const dialTimeout = 5 * time.Second

// newClient does not connect. It reads the environment and files as the AWS SDK does.
func newClient(conf *Config, calls *atomic.Int64) (*client, error) {
	var options []func(*config.LoadOptions) error
	if conf.Region != "" {
		options = append(options, config.WithRegion(conf.Region))
	}
	options = append(options, config.WithHTTPClient(awshttp.NewBuildableClient().WithDialerOptions(func(d *net.Dialer) {
		d.Timeout = dialTimeout
	}).WithTransportOptions(func(t *http.Transport) {
		t.MaxConnsPerHost, t.MaxIdleConnsPerHost, t.MaxIdleConns = conf.Connections, conf.Connections, conf.Connections
		t.ForceAttemptHTTP2 = false
	})))
	cfg, err := config.LoadDefaultConfig(context.Background(), options...)
	if err != nil {
		return nil, fmt.Errorf("the configuration of the AWS SDK: %w", err)
	}
	if cfg.Region == "" {
		return nil, errors.New("no region: add ?region=, or set AWS_REGION")
	}
	c := &client{table: &conf.Table, calls: calls}
	built, ok := cfg.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		return nil, fmt.Errorf("the configuration of the AWS SDK has brought an HTTP client of type %T", cfg.HTTPClient)
	}
	c.transport = built.GetTransport()
	c.api = dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
		o.HTTPClient = &http.Client{Transport: c.transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 0 // repetitions are ours
		o.Logger = logging.Nop{}
		if conf.Endpoint != "" {
			o.BaseEndpoint = &conf.Endpoint
		}
	})
	return c, nil
}

// call makes one call, which is a method of the SDK's client, and judges what came of it.
func call[In, Out any](ctx context.Context, c *client, op string,
	method func(context.Context, *In, ...func(*dynamodb.Options)) (*Out, error), in *In) (out *Out, o outcome, err error) {
	if err := ctx.Err(); err != nil {
		return out, unsent, fmt.Errorf("%s: %w", op, err)
	}
	c.calls.Add(1)
	var sent atomic.Bool
	traced := httptrace.WithClientTrace(ctx,
		&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	out, err = method(traced, in)
	if err != nil {
		err = fmt.Errorf("%s: %w", op, err)
	}
	return out, judge(err, sent.Load()), err
}

// attempt is the time that one try of a call has: the second half of what is left is for another
// one, if that is worth it.
func attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	const least = 50 * time.Millisecond
	deadline, ok := ctx.Deadline()
	if half := time.Until(deadline) / 2; ok && half > least {
		return context.WithTimeout(ctx, half)
	}
	return context.WithCancel(ctx)
}

// A change is what a write does to one item, or what it must find there.
type change struct {
	name   primary
	before item
	after  item // not there: the item must be as before, and stays so
	ttl    types.AttributeValue
}

// condition says that the item is still as before.
func (c *change) condition() (text string, values attributes) {
	if c.before.there() {
		return attrWriter + " = :old", attributes{":old": binaryValue(c.before.writer)}
	}
	return "attribute_not_exists(" + attrKey + ")", attributes{}
}

// update returns the expressions of the write.
func (c *change) update() (update, condition string, values attributes) {
	condition, values = c.condition()
	values[":v"], values[":w"], values[":s"], values[":t"] = integer(c.after.version), binaryValue(c.after.writer),
		binaryValue(string(c.after.state)), c.ttl
	update = "SET " + attrVersion + " = :v, " + attrWriter + " = :w, " + attrState + " = :s, " + attrTTL + " = :t"
	return update, condition, values
}

// write makes one change.
func (c *client) write(ctx context.Context, ch *change) (outcome, error) {
	update, condition, values := ch.update()
	_, o, err := call(ctx, c, "UpdateItem", c.api.UpdateItem, &dynamodb.UpdateItemInput{
		TableName: c.table, Key: ch.name.attributes(), UpdateExpression: &update, ConditionExpression: &condition,
		ExpressionAttributeValues:           values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	return o, err
}

// writeAll makes all changes in one step, or none of them. A call that is
// repeated with the same token repeats no write.
func (c *client) writeAll(ctx context.Context, token string, changes []change) (outcome, error) {
	items := make([]types.TransactWriteItem, len(changes))
	for i := range changes {
		ch := &changes[i]
		if !ch.after.there() {
			condition, values := ch.condition()
			if len(values) == 0 {
				values = nil // DynamoDB takes none, but not an empty set
			}
			items[i].ConditionCheck = &types.ConditionCheck{
				TableName: c.table, Key: ch.name.attributes(), ConditionExpression: &condition, ExpressionAttributeValues: values,
				ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
			}
			continue
		}
		update, condition, values := ch.update()
		items[i].Update = &types.Update{
			TableName: c.table, Key: ch.name.attributes(), UpdateExpression: &update, ConditionExpression: &condition,
			ExpressionAttributeValues:           values,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}
	}
	_, o, err := call(ctx, c, "TransactWriteItems", c.api.TransactWriteItems,
		&dynamodb.TransactWriteItemsInput{TransactItems: items, ClientRequestToken: &token})
	return o, err
}

// found returns the items that an error of write or writeAll brings: those whose conditions did not
// hold, by the position of their change.
func found(err error, each func(i int, a attributes)) {
	if one, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		each(0, one.Item)
	}
	if several, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
		for i, r := range several.CancellationReasons {
			if r.Code != nil && reasons[*r.Code] == changed {
				each(i, r.Item)
			}
		}
	}
}

// maxWrite is how many items DynamoDB takes in one call of TransactWriteItems, and of BatchGetItem; maxBatch in one of
// BatchWriteItem.
const (
	maxWrite = 100
	maxBatch = 25
)

// read returns the items there are under at most maxWrite names, as they are now. Where DynamoDB has not
// had the capacity for all of them the outcome is busy, and unread are the names of the others.
func (c *client) read(ctx context.Context,
	names []primary) (items map[primary]attributes, unread map[primary]bool, o outcome, err error) {
	yes := true
	if len(names) == 1 {
		out, o, err := call(ctx, c, "GetItem", c.api.GetItem,
			&dynamodb.GetItemInput{TableName: c.table, Key: names[0].attributes(), ConsistentRead: &yes})
		if err != nil {
			return nil, nil, o, err
		}
		return map[primary]attributes{names[0]: out.Item}, nil, o, nil
	}
	keys := make([]attributes, len(names))
	for i, n := range names {
		keys[i] = n.attributes()
	}
	out, o, err := call(ctx, c, "BatchGetItem", c.api.BatchGetItem, &dynamodb.BatchGetItemInput{
		RequestItems: map[string]types.KeysAndAttributes{*c.table: {Keys: keys, ConsistentRead: &yes}},
	})
	if err != nil {
		return nil, nil, o, err
	}
	items, unread = map[primary]attributes{}, map[primary]bool{}
	for _, a := range out.Responses[*c.table] {
		items[primaryOf(a)] = a
	}
	for _, a := range out.UnprocessedKeys[*c.table].Keys {
		unread[primaryOf(a)] = true
	}
	if len(unread) > 0 {
		return items, unread, busy, nil
	}
	return items, nil, done, nil
}

// batch puts or deletes at most maxBatch items, each by itself, and returns those that DynamoDB had
// no capacity for.
func (c *client) batch(ctx context.Context,
	all []types.WriteRequest) (left []types.WriteRequest, o outcome, err error) {
	ctx, cancel := attempt(ctx)
	defer cancel()
	out, o, err := call(ctx, c, "BatchWriteItem", c.api.BatchWriteItem,
		&dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{*c.table: all}})
	if err != nil {
		return all, o, err
	}
	return out.UnprocessedItems[*c.table], o, nil
}

// claim writes a row's value unless another one is there that has not ended, which it returns then.
func (c *client) claim(ctx context.Context, name primary, value string, now,
	ends limit.Instant) (other string, o outcome, err error) {
	ctx, cancel := attempt(ctx)
	defer cancel()
	update := "SET " + attrState + " = :s, " + attrEnds + " = :e, " + attrTTL + " = :t"
	condition := "attribute_not_exists(" + attrKey + ") OR " + attrState + " = :s OR " + attrEnds + " <= :now"
	_, o, err = call(ctx, c, "UpdateItem", c.api.UpdateItem, &dynamodb.UpdateItemInput{
		TableName: c.table, Key: name.attributes(), UpdateExpression: &update, ConditionExpression: &condition,
		ExpressionAttributeValues: attributes{
			":s": binaryValue(value), ":e": integer(int64(ends)), ":t": ttl(ends), ":now": integer(int64(now)),
		},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	found(err, func(_ int, a attributes) { other = string(bytesOf(a, attrState)) })
	return other, o, err
}

// rows calls each with all items of a partition, page by page.
func (c *client) rows(ctx context.Context, key string, each func(a attributes)) (outcome, error) {
	yes, condition := true, attrKey+" = :k"
	in := &dynamodb.QueryInput{
		TableName: c.table, ConsistentRead: &yes, KeyConditionExpression: &condition,
		ExpressionAttributeValues: attributes{":k": binaryValue(key)},
	}
	for {
		out, o, err := call(ctx, c, "Query", c.api.Query, in)
		if err != nil {
			return o, err
		}
		for _, a := range out.Items {
			each(a)
		}
		if in.ExclusiveStartKey = out.LastEvaluatedKey; len(in.ExclusiveStartKey) == 0 {
			return done, nil
		}
	}
}
