package httpapi

import (
	"context"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/slots"
)

// storedSlot is a slot with all that is kept of it.
type storedSlot struct {
	assigned
	WindowStart   string `json:"windowStart"`
	ConfigID      string `json:"configId"`
	RequestedTime string `json:"requestedTime"`
	CreatedAt     string `json:"createdAt"`
}

func storedOf(s slots.Slot) storedSlot {
	return storedSlot{assignedOf(s), formatMilli(s.WindowMs), s.ConfigID, formatMicro(s.RequestedUs),
		formatMicro(s.CreatedUs)}
}

func (h *Handlers) getSlot(w http.ResponseWriter, r *http.Request, p web.Params) error {
	slot, err := h.Scheduler.Slot(r.Context(), p["eventId"])
	if err != nil {
		return err
	}
	web.JSON(w, http.StatusOK, storedOf(slot))
	return nil
}

type slotsAnswer struct {
	Slots web.Rows `json:"slots"`          // storedSlot
	Next  string   `json:"next,omitempty"` // if there may be more
}

const (
	defaultSlots   = 100
	defaultWindows = 60
	maxWindows     = 1000
)

// getSlots lists slots in the order in which they were created.
func (h *Handlers) getSlots(w http.ResponseWriter, r *http.Request, p web.Params) error {
	limit, err := p.Limit(defaultSlots, slots.MaxBatch)
	if err != nil {
		return err
	}
	from, err := position(p)
	if err != nil {
		return err
	}
	if err := web.Keep(w, r, limit*slotBytes); err != nil {
		return err
	}
	list, err := h.Scheduler.SlotsSince(r.Context(), from, limit)
	if err != nil {
		return err
	}
	if err := web.Keep(w, r, len(list)*slotBytes); err != nil {
		return err
	}
	answer := slotsAnswer{Slots: web.RowsOf(list, storedOf)}
	if len(list) == limit {
		last := list[limit-1]
		answer.Next = cursor(slots.Position{CreatedUs: last.CreatedUs, ID: last.ID})
	}
	web.JSON(w, http.StatusOK, answer)
	return nil
}

// earliest is before any slot was created.
var earliest = time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)

// position is where since and after say to begin; the later one counts.
func position(p web.Params) (slots.Position, error) {
	from := slots.Position{CreatedUs: earliest.UnixMicro()}
	if text, ok := p["since"]; ok {
		t, err := parseTime("since", text)
		if err != nil {
			return from, err
		}
		from.CreatedUs = t.UnixMicro()
	}
	if text, ok := p["after"]; ok {
		after, ok := readCursor(text)
		if !ok {
			return from, slots.BadField("after", "must be the next of an earlier answer")
		}
		if after.CreatedUs >= from.CreatedUs {
			from = after
		}
	}
	return from, nil
}

// cursor writes a position as text whose form is nobody's business.
func cursor(p slots.Position) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.CreatedUs, 10) + "." + p.ID))
}

// maxCursor is more than a cursor has, as ids of slots have at most 64 bytes.
const maxCursor = 160

// readCursor reads what cursor wrote. What is not that must not get as far as the
// database.
func readCursor(text string) (slots.Position, bool) {
	data, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(text) > maxCursor || !utf8.Valid(data) {
		return slots.Position{}, false
	}
	number, id, _ := strings.Cut(string(data), ".")
	us, err := strconv.ParseInt(number, 10, 64)
	p := slots.Position{CreatedUs: us, ID: id}
	year := time.UnixMicro(us).UTC().Year()
	ok := err == nil && id != "" && !strings.ContainsFunc(id, unicode.IsControl) && year >= 1900 && year < 9000
	return p, ok && cursor(p) == text
}

type windowsAnswer struct {
	configAnswer
	Now      string         `json:"now"`                // of the server
	NextFree string         `json:"nextFree,omitempty"` // start of the first window with room, if it is known
	Windows  []windowAnswer `json:"windows"`
}

type windowAnswer struct {
	Start    string `json:"start"`
	Count    int64  `json:"count"`
	Capacity int64  `json:"capacity"` // 0 where the calendar is closed
}

// getWindows returns how full the next windows of a config are.
func (h *Handlers) getWindows(w http.ResponseWriter, r *http.Request, p web.Params) error {
	limit, err := p.Limit(defaultWindows, maxWindows)
	if err != nil {
		return err
	}
	now := h.Now()
	from := now
	if text, ok := p["from"]; ok {
		if from, err = parseTime("from", text); err != nil {
			return err
		}
	}
	if err := web.Keep(w, r, limit*windowBytes); err != nil {
		return err
	}
	config, err := h.Scheduler.Config(r.Context(), p["config"])
	if err != nil {
		return asked(err, "config")
	}
	list, err := h.Scheduler.Windows(r.Context(), config, from.UnixMilli(), limit)
	if err != nil {
		return err
	}
	answer := windowsAnswer{configAnswer: configOf(config), Now: formatMilli(now.UnixMilli()),
		Windows: windowsOf(config, list)}
	answer.NextFree = h.nextFree(r.Context(), config, answer.Windows, list[len(list)-1].StartMs+config.SizeMs)
	web.JSON(w, http.StatusOK, answer)
	return nil
}

// nextFreeWithin bounds the look for a window with room beyond those that are listed.
const nextFreeWithin = time.Second

// nextFree is the start of the first window with room: one of those listed, or a
// later one, from the instant on. It is "" if there is none, or if it could not be
// found in time: the answer is of use without it.
func (h *Handlers) nextFree(ctx context.Context, c slots.Config, listed []windowAnswer, laterMs int64) string {
	for _, w := range listed {
		if w.Count < w.Capacity {
			return w.Start
		}
	}
	ctx, cancel := context.WithTimeout(ctx, nextFreeWithin)
	defer cancel()
	ms, ok, err := h.Scheduler.NextFree(ctx, c, laterMs)
	if err != nil || !ok {
		return ""
	}
	return formatMilli(ms)
}

func windowsOf(c slots.Config, list []slots.Window) []windowAnswer {
	out := make([]windowAnswer, len(list))
	var from, to int64
	var ok bool
	for i, w := range list {
		if !ok || w.StartMs >= to { // the stretch of open windows that comes next
			from, to, ok = c.Options.Calendar.Span(w.StartMs, c.SizeMs)
		}
		out[i] = windowAnswer{Start: formatMilli(w.StartMs), Count: w.Count}
		if ok && w.StartMs >= from {
			out[i].Capacity = c.Max
		}
	}
	return out
}
