package slots

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// upkeep is a store with so many slots to purge. With a negative number it does not answer.
type upkeep struct {
	Store
	slots   int64
	adopted error
}

func (u *upkeep) Lead(context.Context, string, string, time.Duration) (bool, error) { return true, nil }

func (u *upkeep) PurgeWindows(context.Context, int64, int64, int) (int64, error) { return 0, nil }

func (u *upkeep) Now(context.Context) (int64, error) { return time.Now().UnixMicro(), nil }

func (u *upkeep) PurgeSlots(ctx context.Context, _ int64, limit int) (int64, error) {
	if u.slots < 0 {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	n := min(u.slots, int64(limit))
	u.slots -= n
	return n, nil
}

func (u *upkeep) Adopted(context.Context) (bool, error) { return false, u.adopted }

func upkeepOf(store Store, log *bytes.Buffer) *Scheduler {
	s := &Scheduler{store: store, settings: Settings{KeepSlots: time.Hour,
		Log: slog.New(slog.NewTextHandler(log, nil))}}
	s.settings.setDefaults()
	return s
}

// failures is how often background work has failed.
func failures(s *Scheduler, work string) int64 {
	return s.settings.Metrics.runs.Of(work, "error").Value()
}

// More slots may be assigned between two purges than one go of a purge drops.
func TestAPurgeGoesOnUntilNothingIsLeft(t *testing.T) {
	store := &upkeep{slots: 5 * purgeBatch * purgeBatches / 2}
	s := upkeepOf(store, new(bytes.Buffer))
	want := store.slots
	if n, err := s.purge(t.Context()); n != want || err != nil || store.slots != 0 {
		t.Errorf("%d of %d slots were dropped: %v", n, want, err)
	}
}

// Work that does not end, as behind a lock, stops in its time, and is not silent about it.
func TestBackgroundWorkThatHangsIsReported(t *testing.T) {
	var log bytes.Buffer
	s := upkeepOf(&upkeep{slots: -1}, &log)
	s.asLeader(WorkRetention, 10*time.Millisecond, s.purge)(t.Context())
	if n := failures(s, WorkRetention); n != 1 || !strings.Contains(log.String(), context.DeadlineExceeded.Error()) ||
		!strings.Contains(log.String(), "background work on slots failed") {
		t.Errorf("%d failures, log: %s", n, log.String())
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	s.asLeader(WorkRetention, time.Minute, s.purge)(ended)
	if failures(s, WorkRetention) != 1 {
		t.Errorf("the end of the process is reported: %s", log.String())
	}
}

func TestAFailedLookAtTheTablesIsReported(t *testing.T) {
	away := errors.New("away")
	var log bytes.Buffer
	s := upkeepOf(&upkeep{adopted: away}, &log)
	s.provisionIfWanted()(t.Context())
	if n := failures(s, WorkProvision); n != 1 || !strings.Contains(log.String(), "error=away") {
		t.Errorf("%d failures, log: %s", n, log.String())
	}
}

// patchy is a store where some rows cannot be had, as others hold them.
type patchy struct {
	upkeep
	provisioned []Series
}

var errPatchy = errors.New("others hold the row")

func (p *patchy) PurgeWindows(context.Context, int64, int64, int) (int64, error) { return 0, errPatchy }

func (p *patchy) ActiveConfigs(context.Context, int) ([]Config, error) {
	return []Config{{ID: "1", Name: "a", Max: 1, SizeMs: 1000}, {ID: "2", Name: "b", Max: 1, SizeMs: 2000}}, nil
}

func (p *patchy) Frontier(_ context.Context, s Series, _ int64) (int64, bool, error) {
	if s.SizeMs == 1000 {
		return 0, false, errPatchy
	}
	return 0, false, nil
}

func (p *patchy) Provision(_ context.Context, s Series, _, _ int64, _ *Frontier) (int64, error) {
	p.provisioned = append(p.provisioned, s)
	return 1, nil
}

// Windows that cannot be purged keep no slots beyond their retention.
func TestWindowsThatAreHeldKeepNoSlots(t *testing.T) {
	store := &patchy{upkeep: upkeep{slots: 10}}
	s := upkeepOf(store, new(bytes.Buffer))
	n, err := s.purge(t.Context())
	if n != 10 || store.slots != 0 || !errors.Is(err, errPatchy) {
		t.Errorf("%d slots were dropped, and %d are left: %v", n, store.slots, err)
	}
}

// A config whose windows cannot be made holds up no others.
func TestAConfigThatCannotBeProvisionedHoldsUpNoOthers(t *testing.T) {
	store := &patchy{}
	s := upkeepOf(store, new(bytes.Buffer))
	shared := true
	s.shared.Store(&shared)
	s.settings.Ahead = time.Second
	if n, err := s.provisionAhead(t.Context()); n == 0 || len(store.provisioned) == 0 || !errors.Is(err, errPatchy) {
		t.Errorf("%d windows were made, of %v: %v", n, store.provisioned, err)
	}
}
