package ratelimit

import (
	"reflect"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// A response that is used again shows nothing of the one before: every field is reset.
func TestResponseIsResetAsAWhole(t *testing.T) {
	header := []descriptors.Header{{Name: "a", Value: "b"}}
	r := Response{
		Err: invalid("no"), OverLimit: true, Statuses: []Status{{Remaining: 1}}, Headers: header, RequestHeaders: header,
		Body: "body", Token: "t",
		Degraded: true, Uncounted: true, Inside: Inside{Wait: time.Second}, told: true, granted: []leases.Grant{{Rule: "r"}},
		metadata: [][]byte{{1}}, token: []byte{1}, note: []byte{1},
	}
	before := reflect.ValueOf(r)
	for i := range before.NumField() {
		if before.Field(i).IsZero() {
			t.Errorf("the test fills no field %s", before.Type().Field(i).Name)
		}
	}
	r.reset(1)
	for i, after := 0, reflect.ValueOf(r); i < after.NumField(); i++ {
		name, f := after.Type().Field(i).Name, after.Field(i)
		if name == "Statuses" {
			if f.Len() != 1 || !f.Index(0).IsZero() {
				t.Errorf("Statuses are %v", r.Statuses)
			}
		} else if !f.IsZero() && (f.Kind() != reflect.Slice || f.Len() > 0) {
			t.Errorf("%s is %v", name, f)
		}
	}
}
