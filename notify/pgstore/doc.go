// Package pgstore keeps the users of the notification gateway in PostgreSQL. It decides under the lock of a user's row,
// hands out units to Redis, and has the outbox.
//
// # To change it
//
//   - what is decided under the lock of a row: send.go and turns.go; go test ./notify/pgstore
//   - units for Redis: reserve.go; go test ./notify/pgstore
//   - the outbox: outbox.go and letters.go; go test ./notify/pgstore
package pgstore
