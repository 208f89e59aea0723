// Package kafka publishes the messages of the notification gateway and consumes them.
//
// # To change it
//
//   - what the gateway does when Kafka, PostgreSQL or Redis fail: publisher.go, notify/pgstore/outbox.go and
//     notify/rediscache/cache.go; go test ./test/notify -run Fault
package kafka
