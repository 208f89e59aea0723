// Package spell finds the name that a misspelt one may have meant, and spells numbers of things.
//
// # To change it
//
//   - which name is suggested for a misspelled one: spell.go; go test ./internal/kit/spell
package spell
