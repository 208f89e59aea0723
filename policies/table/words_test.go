package table

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
)

// said reads words in the form "limit=2 window=1m".
func said(text string) Given {
	var g Given
	rules, older := g.Words()
	for _, w := range append(rules, older...) {
		for field := range strings.FieldsSeq(text) {
			if value, ok := strings.CutPrefix(field, w.Name+"="); ok {
				*w.Text = value
			}
		}
	}
	return g
}

// inBoth are policies in the words of rules and in the older ones.
var inBoth = []struct {
	rules, older Given
	want         policies.Figures
	again        Given // as answers have it
}{
	{
		said("algorithm=fixed_window limit=0 window=1h"),
		said("type=FIXED_WINDOW capacity=0 windowSeconds=3600"),
		figures(limit.FixedWindow, 0, 0, 3600*policies.One),
		said("algorithm=fixed_window limit=0 window=1h"),
	},
	{
		said("algorithm=sliding_log limit=2 window=60s"),
		said("type=SLIDING_WINDOW capacity=2 windowSeconds=60"),
		figures(limit.SlidingLog, 2, 0, 60*policies.One),
		said("algorithm=sliding_log limit=2 window=1m"),
	},
	{
		said("algorithm=sliding_window rate=7/d"),
		said("type=SLIDING_WINDOW_COUNTER capacity=7 refillRate=0 windowSeconds=86400"),
		figures(limit.SlidingWindow, 7, 0, 86400*policies.One),
		said("algorithm=sliding_window limit=7 window=24h"),
	},
	{
		said("algorithm=token_bucket rate=600/min burst=100"),
		said("type=TOKEN_BUCKET capacity=100 refillRate=10"),
		figures(limit.TokenBucket, 100, 10*policies.One, 0),
		said("algorithm=token_bucket rate=10/s burst=100"),
	},
	{
		said("algorithm=token_bucket rate=15/min"),
		said("type=TOKEN_BUCKET capacity=15 refillRate=0.25 windowSeconds=0"),
		figures(limit.TokenBucket, 15, policies.One/4, 0),
		said("algorithm=token_bucket rate=1/4s burst=15"),
	},
	{
		said("algorithm=token_bucket rate=1/1000000s burst=1"),
		said("type=TOKEN_BUCKET capacity=1 refillRate=0.000001"),
		figures(limit.TokenBucket, 1, 1, 0),
		said("algorithm=token_bucket rate=1/1000000s burst=1"),
	},
}

// together returns a Given that has the words of both.
func together(rules, older Given) Given {
	g := rules
	g.Type, g.Capacity, g.RefillRate, g.WindowSeconds = older.Type, older.Capacity, older.RefillRate, older.WindowSeconds
	return g
}

// TestBothSetsOfWordsSayTheSame: each algorithm can be given in either set, and in both, and what
// answers say can be given again.
func TestBothSetsOfWordsSayTheSame(t *testing.T) {
	for _, c := range inBoth {
		for _, g := range []Given{c.rules, c.older, together(c.rules, c.older), c.again, together(c.again, c.older)} {
			if f, err := g.Figures(); err != nil || f != c.want {
				t.Errorf("%+v: %+v, %v; want %+v", g, f, err, c.want)
			}
		}
		w := c.want.Words()
		again := Given{Algorithm: w.Algorithm, Window: w.Window, Rate: w.Rate}
		if w.Limit != nil {
			again.Limit = fmt.Sprint(*w.Limit)
		}
		if w.Burst != 0 {
			again.Burst = fmt.Sprint(w.Burst)
		}
		if again != c.again {
			t.Errorf("%+v is answered as %+v, want %+v", c.want, again, c.again)
		}
	}
}

func figures(a limit.Algorithm, capacity int64, refill, window policies.Amount) policies.Figures {
	return policies.Figures{Algorithm: a, Capacity: capacity, Refill: refill, Window: window}
}

// TestOlderWordsKeepWhatTheAlgorithmDoesNotUse: what an answer says of it can be sent again.
func TestOlderWordsKeepWhatTheAlgorithmDoesNotUse(t *testing.T) {
	for _, c := range []struct {
		g    Given
		want policies.Figures
	}{
		{
			said("algorithm=token_bucket rate=10/s burst=100 type=TOKEN_BUCKET capacity=100 refillRate=10 windowSeconds=60"),
			figures(limit.TokenBucket, 100, 10*policies.One, 60*policies.One)},
		{
			said("algorithm=sliding_log limit=2 window=1m type=SLIDING_WINDOW capacity=2 refillRate=3 windowSeconds=60"),
			figures(limit.SlidingLog, 2, 3*policies.One, 60*policies.One)},
	} {
		if f, err := c.g.Figures(); err != nil || f != c.want {
			t.Errorf("%+v: %+v, %v; want %+v", c.g, f, err, c.want)
		}
	}
}

// TestHalvesOfSetsAreRefused: wherever one word of both sets is missing that its set needs, and where
// any one differs.
func TestHalvesOfSetsAreRefused(t *testing.T) {
	for _, c := range inBoth {
		whole := together(c.again, c.older)
		rules, older := whole.Words()
		for i, w := range append(rules, older...) {
			text := *w.Text
			if text == "" || text == "0" && w.Name != "limit" && w.Name != "capacity" {
				continue
			}
			*w.Text = ""
			if w.Name != "burst" {
				_, err := whole.Figures()
				if err == nil || !strings.Contains(err.Error(), "is mixed with older words") {
					t.Errorf("%+v: %v", whole, err)
				}
			}
			*w.Text = map[string]string{
				"algorithm": "fixed_window", "limit": "3", "window": "2s", "rate": "3/s", "burst": "3",
				"type": "SLIDING_WINDOW", "capacity": "3", "windowSeconds": "2", "refillRate": "3",
			}[w.Name]
			if w.Name == "algorithm" && text == "fixed_window" {
				*w.Text = "sliding_log"
			}
			if w.Name == "type" && text == "SLIDING_WINDOW" {
				*w.Text = "FIXED_WINDOW"
			}
			if f, err := whole.Figures(); err == nil {
				t.Errorf("word %d, %s: %+v is %+v", i, w.Name, whole, f)
			}
			*w.Text = text
		}
	}
}

func TestWhatIsWrongWithWords(t *testing.T) {
	for want, text := range map[string]string{
		"algorithm is missing: it must be fixed_window, sliding_log, sliding_window, token_bucket": "limit=1 window=1s",
		`algorithm "leaky" is unknown`:                               "algorithm=leaky",
		`algorithm "concurrency" is unknown`:                         "algorithm=concurrency",
		"the older type SLIDING_WINDOW is the algorithm sliding_log": "algorithm=SLIDING_WINDOW",
		`type "sliding_log" is unknown`:                              "type=sliding_log",
		"limit is missing":                                           "algorithm=fixed_window",
		"window is missing":                                          "algorithm=fixed_window limit=1",
		"window 0s is less than 1ms":                                 "algorithm=fixed_window limit=1 window=0s",
		`window "soon": is not`:                                      "algorithm=fixed_window limit=1 window=soon",
		`window "60": needs a unit`:                                  "algorithm=fixed_window limit=1 window=60",
		"window is outside":                                          "algorithm=fixed_window limit=1 window=600w",
		"window 1.0000005s is finer":                                 "algorithm=fixed_window limit=1 window=1.0000005s",
		`limit "1.5" is not a whole number`:                          "algorithm=fixed_window limit=1.5 window=1s",
		"limit -1 is negative":                                       "algorithm=fixed_window limit=-1 window=1s",
		"limit 8589934592 is more than 4294967296":                   "algorithm=sliding_window limit=8589934592 window=1s",
		"burst is there, and fixed_window has none":                  "algorithm=fixed_window limit=1 window=1s burst=1",
		"rate is there as well":                                      "algorithm=fixed_window limit=1 window=1s rate=1/s",
		"limit is there, and token_bucket has none":                  "algorithm=token_bucket limit=1 rate=1/s",
		"window is there, and token_bucket has none":                 "algorithm=token_bucket window=1s rate=1/s",
		"rate is missing: token_bucket":                              "algorithm=token_bucket burst=1",
		`rate "0/s" gives nothing back`:                              "algorithm=token_bucket rate=0/s",
		`rate "5/m": m could be`:                                     "algorithm=token_bucket rate=5/m",
		`rate "0.5/s": "0.5" is not a whole number`:                  "algorithm=token_bucket rate=0.5/s",
		`rate "9223372036854775807/1ns" is too fast`:                 "algorithm=token_bucket rate=9223372036854775807/1ns",
		`rate "1/0s" is too fast`:                                    "algorithm=token_bucket rate=1/0s",
		"next to it: 833333/500000s and 1666667/1000000s":            "algorithm=token_bucket rate=100/min",
		"next to it: 1/1000000s":                                     "algorithm=token_bucket rate=1/month",
		"burst 0 is less than 1":                                     "algorithm=token_bucket rate=1/s burst=0",
		"capacity is missing":                                        "type=FIXED_WINDOW",
		"windowSeconds is missing":                                   "type=FIXED_WINDOW capacity=1",
		"refillRate is missing":                                      "type=TOKEN_BUCKET capacity=1",
		"capacity -1 is negative":                                    "type=TOKEN_BUCKET capacity=-1",
		"windowSeconds is less than 0.001":                           "type=FIXED_WINDOW capacity=1 windowSeconds=0.0009",
		"algorithm is mixed with older words: algorithm with capacity, windowSeconds; " +
			"send the words of one set": "algorithm=sliding_log capacity=2 windowSeconds=60",
		"limit is mixed with older words: limit, window with type": "type=SLIDING_WINDOW limit=2 window=1m",
		"algorithm sliding_window and type SLIDING_WINDOW contradict each other": "algorithm=sliding_window limit=2 " +
			"window=1m type=SLIDING_WINDOW capacity=2 windowSeconds=60",
		"limit 2 and capacity 3 contradict each other": "algorithm=sliding_log limit=2 window=1m " +
			"type=SLIDING_WINDOW capacity=3 windowSeconds=60",
		"window 1m and windowSeconds 61 contradict each other": "algorithm=sliding_log limit=2 window=1m " +
			"type=SLIDING_WINDOW capacity=2 windowSeconds=61",
		"rate 2/min and capacity 3 contradict each other": "algorithm=sliding_log rate=2/min type=SLIDING_WINDOW " +
			"capacity=3 windowSeconds=60",
		"rate 2/s and refillRate 3 contradict each other": "algorithm=token_bucket rate=2/s type=TOKEN_BUCKET capacity=2 " +
			"refillRate=3",
		"burst 5 and capacity 2 contradict each other": "algorithm=token_bucket rate=2/s burst=5 type=TOKEN_BUCKET " +
			"capacity=2 refillRate=2",
	} {
		g := said(text)
		if f, err := g.Figures(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, %v\nwant %q", g, f, err, want)
		}
	}
}

// TestWordsOfLimits of rules are those that rules have.
func TestWordsOfLimits(t *testing.T) {
	for want, s := range map[string]limit.Spec{
		"{token_bucket  1000/1m 250}": {Algorithm: limit.TokenBucket, Max: 1000, Window: time.Minute, Burst: 250},
		"{token_bucket  9/9s 9}":      {Algorithm: limit.TokenBucket, Max: 9, Window: 9 * time.Second},
		"{sliding_log 1h30m  0}":      {Algorithm: limit.SlidingLog, Max: 3, Window: 90 * time.Minute},
		"{concurrency   0}":           {Algorithm: limit.Concurrency, Max: 3, Window: time.Minute},
		"{   0}":                      {Max: 3},
	} {
		w := policies.WordsOf(s)
		if limited := w.Limit != nil && *w.Limit == 3; limited != (s.Max == 3 && s.Algorithm != 0) {
			t.Errorf("%+v has the limit %v", s, w.Limit)
		}
		if got := fmt.Sprint(struct {
			Algorithm, Window, Rate string
			Burst                   int64
		}{w.Algorithm, w.Window, w.Rate, w.Burst}); got != want {
			t.Errorf("%+v: %s, want %s", s, got, want)
		}
	}
}
