package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/background"
)

// Migrate implements [backends.Migrator]: it makes the table, and has DynamoDB delete what has ended.
// A table that is there keeps its capacity.
func (b *Backend) Migrate(ctx context.Context) (applied []string, err error) {
	applied, err = b.migrate(ctx)
	return applied, standing(err)
}

func (b *Backend) migrate(ctx context.Context) (applied []string, err error) {
	there, err := b.describe(ctx)
	if err != nil {
		return nil, err
	}
	if there == nil {
		if err := b.create(ctx); err != nil {
			return nil, err
		}
		applied = append(applied, "table "+b.conf.Table)
	}
	for there == nil || there.TableStatus != types.TableStatusActive {
		if background.Sleep(ctx, 200*time.Millisecond) != nil {
			return applied, failed(fmt.Errorf("wait for the table %s: %w", b.conf.Table, ctx.Err()), true)
		}
		if there, err = b.describe(ctx); err != nil {
			return applied, err
		}
	}
	if err := checkKeys(there); err != nil {
		return applied, err
	}
	expires, err := b.expire(ctx)
	if expires {
		applied = append(applied, "time to live of "+b.conf.Table)
	}
	return applied, err
}

// describe returns the description of the table, or nil if the table does not exist.
func (b *Backend) describe(ctx context.Context) (*types.TableDescription, error) {
	out, _, err := call(ctx, b.client, "DescribeTable", b.client.api.DescribeTable,
		&dynamodb.DescribeTableInput{TableName: b.client.table})
	switch {
	case errors.As(err, new(*types.ResourceNotFoundException)):
		return nil, nil
	case err != nil:
		return nil, failed(err, false)
	}
	return out.Table, nil
}

// create makes the table, unless somebody else just does.
func (b *Backend) create(ctx context.Context) error {
	key, row := attrKey, attrRow
	in := &dynamodb.CreateTableInput{
		TableName:   b.client.table,
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: &key, AttributeType: types.ScalarAttributeTypeB},
			{AttributeName: &row, AttributeType: types.ScalarAttributeTypeB},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: &key, KeyType: types.KeyTypeHash},
			{AttributeName: &row, KeyType: types.KeyTypeRange},
		},
	}
	if b.conf.ReadUnits > 0 {
		reads, writes := int64(b.conf.ReadUnits), int64(b.conf.WriteUnits)
		in.BillingMode = types.BillingModeProvisioned
		in.ProvisionedThroughput = &types.ProvisionedThroughput{ReadCapacityUnits: &reads, WriteCapacityUnits: &writes}
	}
	_, o, err := call(ctx, b.client, "CreateTable", b.client.api.CreateTable, in)
	if err != nil && !errors.As(err, new(*types.ResourceInUseException)) {
		return failed(err, o == lost)
	}
	return nil
}

// checkKeys says what is wrong with the keys of a table, or nothing.
func checkKeys(t *types.TableDescription) error {
	var keys, want string
	for _, k := range t.KeySchema {
		keys += " " + *k.AttributeName + " " + string(k.KeyType)
	}
	for _, d := range t.AttributeDefinitions {
		if *d.AttributeName == attrKey || *d.AttributeName == attrRow {
			keys += " " + string(d.AttributeType)
		}
	}
	if want = " " + attrKey + " HASH " + attrRow + " RANGE B B"; keys != want {
		return fmt.Errorf("%w: the table %s is not one of headgate: its keys are%s, want%s", backends.ErrMisconfigured,
			*t.TableName, keys, want)
	}
	return nil
}

// expire has DynamoDB delete what has ended, and reports whether it did not before.
func (b *Backend) expire(ctx context.Context) (switched bool, err error) {
	out, _, err := call(ctx, b.client, "DescribeTimeToLive", b.client.api.DescribeTimeToLive,
		&dynamodb.DescribeTimeToLiveInput{TableName: b.client.table})
	if err != nil {
		return false, failed(err, false)
	}
	switch d := out.TimeToLiveDescription; {
	case d == nil || d.TimeToLiveStatus == types.TimeToLiveStatusDisabled:
	case d.AttributeName != nil && *d.AttributeName == attrTTL && d.TimeToLiveStatus != types.TimeToLiveStatusDisabling:
		return false, nil
	default:
		return false, fmt.Errorf("%w: time to live of the table %s is %s, of another attribute or for another use",
			backends.ErrMisconfigured, b.conf.Table, d.TimeToLiveStatus)
	}
	name, on := attrTTL, true
	_, o, err := call(ctx, b.client, "UpdateTimeToLive", b.client.api.UpdateTimeToLive, &dynamodb.UpdateTimeToLiveInput{
		TableName:               b.client.table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: &name, Enabled: &on},
	})
	if err != nil {
		return false, failed(err, o == lost)
	}
	return true, nil
}

// template is the table as AWS CloudFormation makes it.
const template = `AWSTemplateFormatVersion: "2010-09-09"
Description: The table in which headgate keeps limits. The URL is dynamodb://NAME?region=REGION
Parameters:
  TableName:
    Type: String
    Default: headgate-limits
Resources:
  Limits:
    Type: AWS::DynamoDB::Table
    Properties:
      TableName: !Ref TableName
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions:
        - {AttributeName: ` + attrKey + `, AttributeType: B}
        - {AttributeName: ` + attrRow + `, AttributeType: B}
      KeySchema:
        - {AttributeName: ` + attrKey + `, KeyType: HASH}
        - {AttributeName: ` + attrRow + `, KeyType: RANGE}
      TimeToLiveSpecification: {AttributeName: ` + attrTTL + `, Enabled: true}
`

// Print returns the table as a template of AWS CloudFormation.
func Print(string) (string, error) { return template, nil }
