// Package metrics is what features say of themselves in figures: rows of one table, which the documentation is made
// from too. A feature declares its rows beside the code that counts, and counts in the types of this package, which
// write an atomic number and nothing else. Who collects rows knows none of the features.
//
// What the package does not do: it knows no metrics library. Package prom turns rows into Prometheus' metrics.
package metrics
