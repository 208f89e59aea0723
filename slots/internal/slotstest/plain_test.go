package slotstest

import (
	"context"

	"github.com/headgate-rls/headgate/slots"
)

// plainEngine is a second engine, short and without any hints, for two uses: to
// compare with, and to be broken on purpose.
type plainEngine struct {
	t    slots.Tables
	flaw string
}

type plainSearch struct {
	*slots.Search
	*plainEngine
	found slots.Found
}

func (e *plainEngine) Assign(ctx context.Context, s *slots.Search) (slots.Found, error) {
	p := &plainSearch{Search: s, plainEngine: e, found: slots.Found{
		Answers: make([]slots.Answer, len(s.Asks)), FirstCount: -1,
	}}
	if err := p.find(ctx); err != nil {
		return p.found, err
	}
	for i := range s.Asks {
		if p.found.Answers[i].Status != slots.Unplaced {
			continue
		}
		if err := p.one(ctx, i); err != nil {
			return p.found, err
		}
	}
	return p.found, nil
}

func (p *plainSearch) find(ctx context.Context) error {
	for i, a := range p.Asks {
		have, err := p.t.Find(ctx, []string{a.EventID})
		if err != nil {
			return err
		}
		if len(have) > 0 && p.flaw != "a retry assigns again" {
			p.found.Answers[i] = slots.Answer{Status: slots.Existing, Slot: have[0]}
			if have[0].ID == a.SlotID {
				p.found.Answers[i].Status = slots.New
			}
		}
	}
	return nil
}

// one places one ask.
func (p *plainSearch) one(ctx context.Context, i int) error {
	if p.Asks[i].FirstMax > 0 {
		limit := p.Asks[i].FirstMax
		if p.flaw == "the first window has its full capacity" {
			limit = p.Max
		}
		if done, err := p.try(ctx, i, p.FirstMs, limit); done || err != nil {
			return err
		}
	}
	return p.later(ctx, i)
}

// later tries the windows after the first one.
func (p *plainSearch) later(ctx context.Context, i int) error {
	end := p.EndMs
	if p.flaw == "the search ends a window early" {
		end -= p.SizeMs
	}
	for from := p.FromMs; ; {
		at, ok, err := p.t.Scout(ctx, p.Series, from, end, p.Max)
		if err != nil {
			return err
		}
		if !ok {
			p.found.Exhausted = true
			return nil
		}
		done, err := p.try(ctx, i, at, p.Max)
		if done || err != nil {
			return err
		}
		if p.flaw == "advances past a second scout's window" {
			if at, _, err = p.t.Scout(ctx, p.Series, from, end, p.Max); err != nil {
				return err
			}
		}
		from = at + p.SizeMs
	}
}

// try claims a place in the window.
func (p *plainSearch) try(ctx context.Context, i int, at, limit int64) (bool, error) {
	tx, err := p.t.Begin(ctx, p.ConfigID)
	if err != nil {
		return false, err
	}
	if p.flaw != "a transaction is left open" {
		defer tx.Rollback()
	}
	count, ok, err := tx.Lock(ctx, p.Series, at, limit)
	if slots.KindOf(err) == slots.Held {
		return false, nil
	}
	if err != nil || !ok {
		return false, err
	}
	a := &p.Asks[i]
	slot := slots.Slot{
		ID: a.SlotID, EventID: a.EventID, Series: p.Series, RequestedUs: a.RequestedUs, WindowMs: at,
		ScheduledMs: p.ScheduledMs(a, at, count), ConfigID: p.ConfigID,
	}
	if p.flaw == "the jitter ignores what is over of the window" {
		slot.ScheduledMs = at + int64(a.Bits)%p.SizeMs
	}
	if err := tx.Claim(ctx, p.Series, at, []slots.Slot{slot}); err != nil {
		return false, err
	}
	if p.flaw == "answers before it commits" {
		p.found.Answers[i] = slots.Answer{Status: slots.New, Slot: slot}
	}
	if err := tx.Commit(ctx); err != nil && p.flaw != "a lost commit is a success" {
		return false, err
	}
	p.found.Answers[i] = slots.Answer{Status: slots.New, Slot: slot}
	return true, nil
}
