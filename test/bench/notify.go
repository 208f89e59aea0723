package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/headgate-rls/headgate/backends/redis"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/notify"
	"github.com/headgate-rls/headgate/notify/kafka"
	"github.com/headgate-rls/headgate/notify/pgstore"
	"github.com/headgate-rls/headgate/notify/rediscache"
	"github.com/headgate-rls/headgate/test/testenv"
)

// What is measured of the notification gateway: sends by 64 callers to users who are far from
// their limits, by each way to decide and deliver, beside the floor, which is what the servers take
// to lock a user's row, publish, update the row and commit. PostgreSQL waits for the disk at each
// commit, and Kafka has one broker.
const (
	notifyCallers = 64
	notifyPool    = 30
	notifyLinger  = 2 * time.Millisecond // the default of --publish-linger
)

// A notifyLoad is a table: who the messages are for, and how slow the disk of PostgreSQL is.
type notifyLoad struct {
	name  string
	users func(effort) int64
	// commit is how much longer than the disk takes a commit waits, as if the disk was slow;
	// others that commit meanwhile wait together.
	commit time.Duration
}

var notifyLoads = []notifyLoad{
	{name: "many users", users: func(e effort) int64 { return e.notifyUsers }},
	{name: "one user", users: func(effort) int64 { return 1 }},
	{name: "many users, commits take 10 ms longer", users: func(e effort) int64 { return e.notifyUsers },
		commit: 10 * time.Millisecond},
}

// notifyParts are the processes whose CPU time is measured, by their names in /proc. The first is
// this process, which is the gateway and its callers.
var notifyParts = []string{"self", "postgres", "java", "redis-server"}

// A notifyWay is a row of the table.
type notifyWay struct {
	name   string
	outbox bool
	redis  string // "up", "down" or none
}

// notifyWays begin with the one that others are compared with, and end with the floor.
var notifyWays = []notifyWay{
	{name: "direct"},
	{name: "outbox", outbox: true},
	{name: "redis, direct", redis: "up"},
	{name: "redis, outbox", redis: "up", outbox: true},
	{name: "fall-back, direct", redis: "down"},
	{name: "floor"},
}

func (b *bench) notifyTable(ctx context.Context) error {
	fmt.Printf("\nnotification gateway, %d callers: sends/s, times direct, times the floor; "+
		"µs of CPU per send in the gateway with its callers, "+
		"PostgreSQL, Kafka, Redis and all together; the share of the machine's CPU that they used; P50 and P99 in ms\n",
		notifyCallers)
	skipped, err := withServers("notify", func(tb *benchTB) error {
		servers := notifyServers{testenv.StartDatabase(tb, testenv.Postgres, testenv.Durable()), testenv.StartKafka(tb),
			testenv.StartRedis(tb)}
		for i, l := range notifyLoads {
			servers.postgres.Exec(fmt.Sprintf("ALTER SYSTEM SET commit_delay = %d", l.commit.Microseconds()))
			servers.postgres.Exec("ALTER SYSTEM SET commit_siblings = 0")
			servers.postgres.Exec("SELECT pg_reload_conf()")
			fmt.Printf("\n%s\n%-18s %8s %7s %7s %8s %8s %8s %8s %8s %6s %8s %8s\n", l.name,
				"", "sends/s", "direct", "floor", "gateway", "postgres", "kafka", "redis", "sum", "CPU", "P50", "P99")
			if err := b.notifyLoad(ctx, servers, fmt.Sprint("load", i), l.users(b.effort)); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
		return nil
	})
	if skipped != "" {
		fmt.Println("not run:", skipped)
	}
	return err
}

// notifyLoad measures all ways with a load.
func (b *bench) notifyLoad(ctx context.Context, servers notifyServers, prefix string, users int64) error {
	ctx, stop := context.WithCancel(ctx)
	var all []*notifyRun
	defer func() {
		stop()
		for _, run := range all {
			run.close()
		}
	}()
	for i, way := range notifyWays {
		run := &notifyRun{notifyWay: way, cpu: map[string]time.Duration{}, users: users,
			prefix: fmt.Sprint(prefix, "-way", i, "-")}
		all = append(all, run)
		if err := run.open(ctx, servers); err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
	}
	return b.notifyRows(ctx, all)
}

type notifyServers struct {
	postgres *testenv.Database
	kafka    *testenv.KafkaBroker
	redis    *testenv.RedisServer
}

// A notifyRun is a way at work, and what it did.
type notifyRun struct {
	notifyWay
	slotRun
	cpu map[string]time.Duration // by part

	users     int64
	prefix    string // of its users and its topic: the ways share servers
	raw       *sql.DB
	publisher *kafka.Publisher
	store     *pgstore.Store
	client    *redis.Client
	send      func(ctx context.Context, m notify.Message) error
	behind    sync.WaitGroup
}

// open makes the parts and the users.
func (r *notifyRun) open(ctx context.Context, servers notifyServers) (err error) {
	log := slog.New(slog.DiscardHandler)
	database := servers.postgres.CreateDatabase("notify")
	topic := kafka.Topic{Brokers: []string{servers.kafka.Addr}, Name: r.prefix + "sms", Partitions: 4, Replicas: 1}
	if r.raw, err = sql.Open("pgx", database); err != nil {
		return err
	}
	r.raw.SetMaxOpenConns(notifyPool)
	r.raw.SetMaxIdleConns(notifyPool)
	if r.publisher, err = kafka.NewPublisher(topic, 10*time.Second, notifyLinger); err != nil {
		return err
	}
	if err := r.publisher.EnsureTopic(ctx); err != nil {
		return err
	}
	r.store, err = pgstore.Open(pgstore.Config{
		Database: sqldb.Config{URL: database, PoolMin: notifyPool, PoolMax: notifyPool, Log: log}, Publisher: r.publisher,
		Outbox: r.outbox,
	})
	if err != nil {
		return err
	}
	if _, err := r.store.Migrate(ctx); err != nil {
		return err
	}
	const users = "INSERT INTO rate_limit_store (user_id, rate_limit, time_window, last_refresh_time) SELECT $1 || n, " +
		"$2, 60, clock_timestamp() FROM generate_series(0, $3 - 1) AS n"
	if _, err := r.raw.ExecContext(ctx, users, r.prefix, notify.MaxLimit, r.users); err != nil {
		return err
	}
	r.behind.Go(func() { r.store.Relay(ctx) })
	r.send = func(ctx context.Context, m notify.Message) error { _, err := r.store.Send(ctx, m); return err }
	switch {
	case r.name == "floor":
		r.send = r.floor
	case r.redis != "":
		return r.openRedis(ctx, servers.redis.URL(), log)
	}
	return nil
}

// openRedis puts Redis in front.
func (r *notifyRun) openRedis(ctx context.Context, url string, log *slog.Logger) error {
	if r.redis == "down" {
		url = "redis://127.0.0.1:1"
	}
	at, err := redis.Parse(url)
	if err != nil {
		return err
	}
	if r.client, err = redis.NewClient(at, log); err != nil {
		return err
	}
	cache := rediscache.New(rediscache.Config{Client: r.client, Store: r.store, Timeout: 10 * time.Second,
		MaxTTL: 24 * time.Hour, SyncDelay: 100 * time.Millisecond, Log: log})
	r.behind.Go(func() { cache.Run(ctx) })
	r.send = func(ctx context.Context, m notify.Message) error { _, err := cache.Send(ctx, m); return err }
	return nil
}

// close waits for what is done behind the answers, which ends with the context of open.
func (r *notifyRun) close() {
	r.behind.Wait()
	if r.client != nil {
		_ = r.client.Close()
	}
	if r.store != nil {
		_ = r.store.Close()
	}
	if r.publisher != nil {
		r.publisher.Close()
	}
	if r.raw != nil {
		_ = r.raw.Close()
	}
}

// floor is what a send cannot do without when the database decides.
func (r *notifyRun) floor(ctx context.Context, m notify.Message) error {
	tx, err := r.raw.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var count int64
	if err := tx.QueryRowContext(ctx, "SELECT current_count FROM rate_limit_store WHERE user_id = $1 FOR UPDATE",
		m.UserID).Scan(&count); err != nil {
		return err
	}
	if err := r.publisher.Publish(ctx, []notify.Message{m})[0]; err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE rate_limit_store SET current_count = $2 WHERE user_id = $1", m.UserID,
		count+1); err != nil {
		return err
	}
	return tx.Commit()
}

// notifyRows measures all ways in turns, and prints them.
func (b *bench) notifyRows(ctx context.Context, all []*notifyRun) error {
	for _, run := range all {
		if err := run.warmUp(ctx, b.warmUp); err != nil {
			return fmt.Errorf("%s: %w", run.name, err)
		}
	}
	for range b.slotRounds {
		for _, run := range all {
			if err := run.measure(ctx, b.length/time.Duration(b.slotRounds)); err != nil {
				return fmt.Errorf("%s: %w", run.name, err)
			}
		}
	}
	direct, floor := all[0].rate(), all[len(all)-1].rate()
	for _, run := range all {
		slices.Sort(run.took)
		fmt.Printf("%-18s %8.0f %6.2fx %6.2fx", run.name, run.rate(), run.rate()/direct, run.rate()/floor)
		var sum time.Duration
		for _, part := range notifyParts {
			fmt.Printf(" %8.0f", float64(run.cpu[part].Microseconds())/float64(len(run.took)))
			sum += run.cpu[part]
		}
		busy := sum.Seconds() / run.length.Seconds() / float64(runtime.NumCPU())
		ms := func(share float64) float64 { return quantile(run.took, share).Seconds() * 1e3 }
		fmt.Printf(" %8.0f %5.0f%% %8.1f %8.1f\n", float64(sum.Microseconds())/float64(len(run.took)), 100*busy,
			ms(0.5), ms(0.99))
	}
	return nil
}

// measure adds a round, with the CPU time of all that belongs to its sends.
func (r *notifyRun) measure(ctx context.Context, length time.Duration) error {
	before, err := familyCPU()
	if err != nil {
		return err
	}
	run, err := r.sends(ctx, length)
	if err != nil {
		return err
	}
	if err := r.drained(ctx); err != nil {
		return err
	}
	after, err := familyCPU()
	r.add(run)
	for part, used := range after {
		r.cpu[part] += used - before[part]
	}
	return err
}

func (r *notifyRun) sends(ctx context.Context, length time.Duration) (slotRun, error) {
	return runCallers(notifyCallers, length, func(i int64) error { return r.sendTo(ctx, i) })
}

// sendTo sends a message to one of the users.
func (r *notifyRun) sendTo(ctx context.Context, i int64) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // of a busy machine
	defer cancel()
	return r.send(ctx, notify.Message{ID: uuid.NewString(), UserID: fmt.Sprint(r.prefix, i%r.users),
		Text: "Your code is 123456", AcceptedAt: time.Now().UTC()})
}

// warmUp sends messages to all users, so that all have a block in Redis, and the servers have
// done before what is measured.
func (r *notifyRun) warmUp(ctx context.Context, length time.Duration) error {
	var next atomic.Int64
	if _, err := loop(notifyCallers, times(int(r.users)),
		func(int, time.Time) error { return r.sendTo(ctx, next.Add(1)) }); err != nil {
		return err
	}
	if _, err := r.sends(ctx, length); err != nil {
		return err
	}
	return r.drained(ctx)
}

// drained waits until all messages of the outbox are published.
func (r *notifyRun) drained(ctx context.Context) error {
	for more := after(time.Minute); more(); time.Sleep(10 * time.Millisecond) {
		var waiting bool
		if err := r.raw.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM notify_outbox)").Scan(&waiting); err != nil ||
			!waiting {
			return err
		}
	}
	return fmt.Errorf("the outbox is not published within a minute")
}
