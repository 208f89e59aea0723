package slotstest

import (
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// TestModelPassesTheStoreSuite: what the properties are checked on keeps the contract of
// stores.
func TestModelPassesTheStoreSuite(t *testing.T) {
	Run(t, Harness{Name: "model", Fresh: func(*testing.T) Database {
		m := NewModel()
		m.clockUs = time.Now().UnixMicro()
		return Database{Open: func(*testing.T) slots.Store { return m }}
	}})
}
