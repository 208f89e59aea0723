// Package pgstore keeps the users of the notification gateway in PostgreSQL. It decides
// under the lock of a user's row, hands out units to Redis, and has the outbox.
package pgstore
