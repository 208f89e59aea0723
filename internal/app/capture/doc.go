// Package capture writes what is asked of a service into a file, or sends it to those who ask for it, as lines of JSON
// that `headgate replay` reads. It delays no answer: what it cannot write in time it drops, and counts.
package capture
