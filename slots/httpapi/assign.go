package httpapi

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/slots"
)

// replayedHeader reports that the event had the slot already.
const replayedHeader = "Idempotency-Replayed"

// ignoredHeader names the unknown fields of a request, which were ignored.
const ignoredHeader = "Ignored-Fields"

// readRequest reads the body of a request for slots. Clients send such requests with
// fields of their own; a config is read strictly, since an option that is ignored
// would leave a limit wider than it was meant.
func readRequest(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	names, err := web.ReadJSONIgnoring(w, r, limit, v)
	if len(names) > 0 {
		w.Header().Set(ignoredHeader, headerList(names))
	}
	return err
}

// headerList joins names; those with other characters than words have are quoted.
func headerList(names []string) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = name
		if !plainName.MatchString(name) {
			list[i] = strconv.QuoteToASCII(name)
		}
	}
	return strings.Join(list, ", ")
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_.$\[\]-]+$`)

type slotRequest struct {
	EventID       string  `json:"eventId"`
	ConfigName    *string `json:"configName,omitempty"`
	RequestedTime string  `json:"requestedTime"`
}

// assigned is the documented answer.
type assigned struct {
	EventID       string `json:"eventId"`
	ScheduledTime string `json:"scheduledTime"`
	DelayMs       int64  `json:"delayMs"`
}

func assignedOf(s slots.Slot) assigned {
	return assigned{s.EventID, formatMilli(s.ScheduledMs), s.Delay().Milliseconds()}
}

func (h *Handlers) postSlot(w http.ResponseWriter, r *http.Request, _ web.Params) error {
	var body slotRequest
	if err := readRequest(w, r, maxBody, &body); err != nil {
		return err
	}
	req, err := request(body.EventID, body.ConfigName, body.RequestedTime)
	if err != nil {
		return err
	}
	result, err := h.Scheduler.Assign(r.Context(), req)
	if err != nil {
		return err
	}
	if result.Replayed {
		w.Header().Set(replayedHeader, "true")
	}
	web.JSON(w, http.StatusOK, assignedOf(result.Slot))
	return nil
}

type batchRequest struct {
	Events []slotRequest `json:"events"`
}

type batchAnswer struct {
	Results []any `json:"results"` // batchSlot or batchFailure
}

type batchSlot struct {
	Status int `json:"status"`
	assigned
	Replayed bool `json:"replayed,omitempty"`
}

type batchFailure struct {
	Status     int    `json:"status"`
	EventID    string `json:"eventId"`
	Error      string `json:"error"`
	Message    string `json:"message"`
	RetryAfter int64  `json:"retryAfter,omitempty"` // seconds
	FirstFree  string `json:"firstFree,omitempty"`
}

// postBatch assigns many events. Each is judged by itself: one that is wrong
// does not keep the others from their slots.
func (h *Handlers) postBatch(w http.ResponseWriter, r *http.Request, _ web.Params) error {
	var body batchRequest
	if err := readRequest(w, r, maxBatch, &body); err != nil {
		return err
	}
	if n := len(body.Events); n == 0 || n > slots.MaxBatch {
		return slots.BadField("events", "has %d entries, want 1 to %d", n, slots.MaxBatch)
	}
	if err := web.Keep(w, r, len(body.Events)*eventBytes); err != nil {
		return err
	}
	results := make([]any, len(body.Events))
	var requests []slots.Request
	var places []int // of requests in results
	for i, e := range body.Events {
		req, err := request(e.EventID, e.ConfigName, e.RequestedTime)
		if err != nil {
			results[i] = h.batchFailure(r, e.EventID, err)
			continue
		}
		requests, places = append(requests, req), append(places, i)
	}
	if len(requests) > 0 {
		for k, b := range h.Scheduler.AssignBatch(r.Context(), requests) {
			if b.Err != nil {
				results[places[k]] = h.batchFailure(r, requests[k].EventID, b.Err)
				continue
			}
			results[places[k]] = batchSlot{http.StatusOK, assignedOf(b.Slot), b.Replayed}
		}
	}
	web.JSON(w, http.StatusOK, batchAnswer{results})
	return nil
}

func (h *Handlers) batchFailure(r *http.Request, eventID string, err error) batchFailure {
	e := explain(err)
	h.logFailure(r, e.status, err)
	return batchFailure{e.status, eventID, http.StatusText(e.status), e.message, units.CeilSeconds(e.retry), e.free}
}
