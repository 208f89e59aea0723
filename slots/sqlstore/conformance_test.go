package sqlstore

import (
	"testing"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/slotstest"
)

// The suite that every store is held to. Package slotstest itself runs it on the
// servers that there always are; here it is for a genuine MySQL.
func TestConformance(t *testing.T) {
	for _, s := range servers() {
		if s.name != "mysql" {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			slotstest.Run(t, slotstest.Harness{Name: s.name, Fresh: func(t *testing.T) slotstest.Database {
				url := s.create(t)
				return slotstest.Database{URL: url, Open: func(t *testing.T) slots.Store { return migrated(t, url) }}
			}})
		})
	}
}
