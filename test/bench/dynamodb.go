package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/dynamodb"
	"github.com/headgate-rls/headgate/test/testenv"
)

// What is measured of limits in DynamoDB: calls for each decision, and nothing of AWS. DynamoDB Local is
// a program on this machine, with other speed and no bill.

var dynamoLoads = []limitLoad{
	{name: "1,000 keys", processes: 1, keys: 1000},
	{name: "hot key", processes: 1, keys: 1},
	{name: "hot key, 3 processes", processes: 3, keys: 1},
	{name: "new keys", processes: 1, keys: 1 << 40, fresh: true},
	{name: "everything refused", processes: 1, keys: 1000, refused: true},
}

func (b *bench) dynamoTable(ctx context.Context) error {
	fmt.Printf("\nlimits in DynamoDB Local, %d callers per process: calls of DynamoDB for 1,000 decisions, "+
		"requests per slice,\n"+
		"decisions/s, P50 and P99 in ms. Only the first two figures say something of AWS\n\n", databaseCallers)
	return withDynamo(ctx, "dynamodb", func(_ *dynamodb.Backend, url string) error {
		for _, l := range dynamoLoads {
			if !b.only.MatchString("dynamodb " + l.name) {
				continue
			}
			l.clocked = true
			if err := b.dynamoRow(ctx, url, &l); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
		return nil
	})
}

// withDynamo starts DynamoDB Local for a table, with the store's table in it.
func withDynamo(ctx context.Context, table string, measure func(store *dynamodb.Backend, url string) error) error {
	for _, v := range testenv.DynamoCredentials() {
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	skipped, err := withServers(table, func(tb *benchTB) error {
		url := testenv.DynamoTable(testenv.StartDynamoDB(tb, testenv.InMemory).URL, "limits")
		store, err := openDynamo(url)
		if err != nil {
			return err
		}
		defer store.Close()
		if _, err := store.Migrate(ctx); err != nil {
			return err
		}
		return measure(store, url)
	})
	if skipped != "" {
		fmt.Println("not run:", skipped)
	}
	return err
}

func openDynamo(url string) (*dynamodb.Backend, error) {
	conf, err := dynamodb.Parse(url)
	if err != nil {
		return nil, err
	}
	conf.Timeout, conf.Tries, conf.Now = 10*time.Second, 20, time.Now // of a busy machine
	return dynamodb.Open(conf)
}

func (b *bench) dynamoRow(ctx context.Context, url string, l *limitLoad) error {
	var next atomic.Int64
	var calls func() float64
	open := func() (measured, error) {
		store, err := openDynamo(url)
		if err != nil {
			return nil, err
		}
		before := calls
		calls = func() float64 { return before() + figureOf(store, "headgate_dynamodb_calls_total") }
		return store, nil
	}
	var run limitRun
	for range 2 { // the first time to warm up
		calls = func() float64 { return 0 }
		var err error
		if run, err = l.decide(ctx, open, &next, b.length); err != nil {
			return err
		}
	}
	slices.Sort(run.took)
	ms := func(share float64) float64 { return quantile(run.took, share).Seconds() * 1e3 }
	n := float64(len(run.took))
	fmt.Printf("dynamodb  %-26s %7.1f %6.1f %8.0f %7.1f %7.1f\n", l.name, 1000*calls()/n, n/float64(run.slices),
		run.rate(), ms(0.5), ms(0.99))
	return nil
}

// figureOf is one of the figures of a store.
func figureOf(store backends.Figured, name string) float64 {
	for _, f := range store.Figures() {
		if f.Name == name {
			return f.Value()
		}
	}
	return 0
}
