// Package dynamodb keeps rate-limit state in a table of Amazon DynamoDB.
//
// # To change it
//
//   - how limits are kept in DynamoDB: one decision and its tries in decision.go, write.go, what an error means in
//     errors.go, the table in schema.go; go test ./backends/dynamodb
//
// # More
//
// A key has one item, which names the process that wrote it last. This process remembers the items that it has seen. It
// decides by what it remembers, and writes the result on the condition that the item has not changed; if it has, the
// answer brings the new item, and it decides again. So a key that nobody else uses costs one write for each slice.
// README.md states what is guaranteed, and what a decision costs.
//
// Files from below: the settings (config.go), items and keys (item.go), errors (errors.go), what is remembered
// (cache.go) and who else writes (race.go), single calls (client.go), one decision with its repetitions (decision.go,
// write.go), and what is made of them: take.go, registry.go, schema.go. dynamodb.go puts them together.
//
// What the package does not do: it does not decide what happens when DynamoDB is away, it answers nothing by what it
// remembers alone, and it has no clock.
package dynamodb
