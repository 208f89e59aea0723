// Package coalesce lets callers that hold one request each share the trips to a store, in the way databases commit in
// groups.
//
// A Take is sent at once while few enough are under way. Otherwise it waits for one of those to end, and whatever has
// gathered by then goes as one slice. There is no timer: a store that keeps up gets single requests, and one that does
// not gets larger slices, which cost it less per request.
//
// A store that works on one slice at a time gets the next one up to a sixteenth of the last one's time later, and 250
// µs at most, if most of those who were answered come back in that time.
//
// # To change it
//
//   - which requests share a trip to the store, and which wait for a slow node: coalesce.go, lane.go, linger.go, in
//     Redis backends/redis/owners.go; go test ./backends/layers/coalesce ./backends/stack
//
// # More
//
// Where a store has several servers, requests that wait for other servers go apart, each in slices of its own: a slow
// server delays nobody else. Requests of one Take that may meet at a server stay together, in their order.
//
// Each caller keeps its own deadline; a slice has the latest of its members.
//
// More can arrive than the store can be asked about. What finds no room in the queue, or no turn before its deadline,
// fails with [backends.ErrOverloaded], unless the store itself is slow or away.
//
// What the package does not do: it retries nothing, and it merges no two requests into one. A backend that is Local has
// no trips to share.
package coalesce
