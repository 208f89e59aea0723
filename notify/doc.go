// Package notify is the core of the notification gateway: how many messages each user may send in a window, what a
// message is, and what may go wrong. It decides on rows that others have read, and imports nothing but the standard
// library.
//
// A user's row has a limit, a window and a counter. The window begins when the row says so and is refreshed lazily: the
// first send after its end begins the next one. Nothing runs in the background for it.
//
// # To change it
//
//   - what the notification gateway decides: row.go, pgstore/send.go (under the lock), rediscache/*.lua and
//     rediscache/cache.go (in Redis); go test ./notify/... ./test/notify
//   - what it does when Kafka, PostgreSQL or Redis fail: kafka/publisher.go, pgstore/outbox.go and rediscache/cache.go;
//     go test ./test/notify -run Fault
//
// # More
//
// What the packages below promise together is at the top of docs/notify.md:
//
//   - pgstore has the rows, and decides under their locks;
//   - rediscache decides in Redis, on units that it has taken from a row before;
//   - kafka publishes and consumes, sender handles what was consumed;
//   - httpapi is the REST API, serve puts it all together.
package notify
