// Package rediscache decides sends in Redis, in front of the database.
//
// Units of a window come from the user's row only. The cache takes a block of them out of the row first
// (pgstore.Store.Reserve) and then lets Redis hand out the block, one script call for each send. So the row always
// knows of at least as many units as were given out, and whatever becomes of Redis (lost, emptied, an old state after a
// failover, out of reach of some gateways) nobody gets a unit twice: what is lost with Redis is lost to the user, at
// most a block.
//
// # To change it
//
//   - what Redis decides: take.lua, put.lua, drop.lua and hash.go; go test ./notify/rediscache
//   - what happens without Redis: cache.go; go test ./notify/rediscache; go test ./test/notify -run Fault
//   - what follows the answers: behind.go and pending.go; go test ./notify/rediscache
//
// # More
//
// current_count in the database follows the count in Redis behind the answers. Nothing is decided by it: it is for
// people.
package rediscache
