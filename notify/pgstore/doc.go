// Package pgstore keeps the users of the notification gateway in PostgreSQL. It decides under the lock of a user's row,
// hands out units to Redis, and has the outbox.
//
// # To change it
//
//   - what is decided under the lock of a row: all files; go test ./notify/pgstore
package pgstore
