// Command bench measures what headgate costs: CPU time per call of the serving
// process (and of Redis, where it takes part), beside an empty grpc-go handler
// measured in the same run. CPU time is steadier than throughput on machines
// that are shared; read the ratios, not the single figures.
//
// It prints these tables:
//
//	overview  the stores beside each other
//	closed  every case, on the stack of `headgate serve`, with 64 calls in flight
//	        on two connections, each with a key from a set of 10,000
//	batch   1, 4 and 32 calls per write, the first of which is how Envoy sends
//	slices  the Redis backend alone, by the number of requests in one call
//	contention  the same handler called by many goroutines, without connections
//	distance  Redis 1 and 5 ms away, asked by workers or in the read loop
//	open    latency of some cases at half of a rate reached there, with calls
//	        started on schedule
//	reload  latency while some of 25,600 rules change all the time
//	log     sliding logs in Redis by their number of entries
//	modes   package redis alone, beside figures published for another limiter; -check compares its P95 with a goal
//	reservations  requests whose cost is known afterwards: report it, or reserve and settle
//	leases  requests in flight: acquire, release, and many leases that expire at once
//	envoy   requests through Envoy
//	databases  limits in each database, beside the floor of the database
//	curve   latency of calls to the service with counters in each database, by their rate
//	dynamodb  limits in DynamoDB Local: calls for each decision
//	slots   slots assigned in each database, beside the floor of the database
//	keys    how much memory a counter takes, in memory and in Redis
//	middleware  checks of the library and the net/http middleware, beside other modules, in memory
//	notify  sends of the notification gateway, beside the floor of its servers
//	flame   a flame graph of a case in Redis, written to the file of -flame
//	day     a million slots spread over a day, which takes minutes
//
// Every case runs in a process of its own.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

func main() {
	serve := flag.String("serve", "", "internal: be the server of a case")
	only := flag.String("run", ".", "of the closed, batch, slices and contention tables, databases, dynamodb and slots, "+
		"measure the cases that match this regular expression")
	names := flag.String("tables", strings.Join(tableNames(), ","), "the tables to print")
	length := flag.Duration("time", 3*time.Second, "how long to measure each case")
	storeURL := flag.String("store", "", "internal: the store of a case that is not in memory")
	check := flag.Bool("check", false, "measure the table of modes alone, and exit with 1 if a P95 is over -goal")
	goal := flag.Duration("goal", time.Millisecond, "the most that -check allows for the P95 of a Take in Redis, "+
		"taken as the service does it")
	quick := flag.Bool("tiny", false, "spend next to no time on a figure, to see whether tables can be printed")
	flame := flag.String("flame", "", "`file` for the flame graph of the table flame")
	flag.Parse()
	var err error
	if *serve != "" {
		err = serveCase(*serve, *storeURL)
	} else {
		if *check {
			*names = "modes"
		} else {
			*goal = 0
		}
		err = measureAll(*only, *flame, strings.Split(*names, ","), *length, *goal, *quick)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A bench is one run of the program.
type bench struct {
	effort
	only   *regexp.Regexp
	length time.Duration
	goal   time.Duration // for the P95 of modes; 0 means none
	redis  *redisServer  // nil means none
	closed map[string]result
	flame  string // the file of the flame graph
}

type table struct {
	name  string
	print func(*bench, context.Context) error
}

func tables() []table {
	return []table{
		{"overview", (*bench).overviewTable},
		{"closed", (*bench).closedTable},
		{"batch", (*bench).batchTable},
		{"slices", (*bench).sliceTable},
		{"contention", (*bench).contentionTable},
		{"distance", (*bench).distanceTable},
		{"open", (*bench).openTable},
		{"reload", (*bench).reloadTable},
		{"log", (*bench).logTable},
		{"modes", (*bench).modesTable},
		{"leases", (*bench).leaseTable},
		{"reservations", (*bench).reservationTable},
		{"envoy", (*bench).envoyTable},
		{"databases", (*bench).databaseTable},
		{"curve", (*bench).curveTable},
		{"dynamodb", (*bench).dynamoTable},
		{"slots", (*bench).slotTable},
		{"keys", (*bench).keysTable},
		{"middleware", (*bench).middlewareTable},
		{"notify", (*bench).notifyTable},
		{"flame", (*bench).flameTable},
		{"day", (*bench).dayTable},
	}
}

func tableNames() []string {
	var names []string
	for _, t := range tables() {
		names = append(names, t.name)
	}
	return names
}

func measureAll(only, flame string, names []string, length, goal time.Duration, quick bool) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	for _, name := range names {
		if !slices.Contains(tableNames(), name) {
			return fmt.Errorf("-tables: no table %q; known are %s", name, strings.Join(tableNames(), ", "))
		}
	}
	much := full
	if quick {
		much, length = tiny, 20*time.Millisecond
	} else if length < 100*time.Millisecond {
		return fmt.Errorf("-time: want at least 100ms, not %v", length)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	debug.SetGCPercent(400) // the load's garbage is not what is measured
	b := &bench{effort: much, only: match, length: length, goal: goal, closed: map[string]result{}, flame: flame}
	fmt.Printf("%s, %d cores, %v per case\n", runtime.Version(), runtime.NumCPU(), length)
	if b.redis, err = startRedis(ctx); err != nil && goal > 0 {
		return err
	} else if err != nil {
		fmt.Println("what needs Redis is not run:", err)
	} else {
		defer b.redis.stop()
	}
	for _, t := range tables() {
		if !slices.Contains(names, t.name) {
			continue
		}
		if err := t.print(b, ctx); err != nil {
			return fmt.Errorf("table %s: %w", t.name, err)
		}
	}
	return nil
}
