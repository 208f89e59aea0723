package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/template"
)

// The overview is the first table of docs/performance.md, by which a user chooses a store: how many calls one core
// of the service answers, and how much time of the store's cores 10,000 calls take.

// An overviewCase is a row of the overview.
type overviewCase struct {
	benchCase
	database bool // in PostgreSQL
}

const busyKeys = 1000

var overviewCases = []overviewCase{
	{benchCase: benchCase{name: "empty grpc-go handler", empty: true, grpc: true, descriptors: 1}},
	{benchCase: benchCase{name: "memory", descriptors: 1, limit: roomy, keys: busyKeys}},
	{benchCase: benchCase{name: "Redis, as envoyproxy/ratelimit", redis: true, layout: "envoy", descriptors: 1,
		limit: asReference, keys: busyKeys}},
	{benchCase: benchCase{name: "Redis, exact", redis: true, descriptors: 1, limit: roomy, keys: busyKeys}},
	{benchCase: benchCase{name: "Redis, `local_share: auto`", redis: true, descriptors: 1, limit: shared("auto"),
		keys: busyKeys}},
	{benchCase: benchCase{name: "PostgreSQL, exact", redis: true, descriptors: 1, limit: roomy, keys: busyKeys},
		database: true},
	{benchCase: benchCase{name: "PostgreSQL, `local_share: auto`", redis: true, descriptors: 1, limit: shared("auto"),
		keys: busyKeys}, database: true},
}

func overviewBenchCases() (list []benchCase) {
	for _, c := range overviewCases {
		list = append(list, c.benchCase)
	}
	return list
}

func (b *bench) overviewTable(ctx context.Context) error {
	fmt.Printf("\n%d calls in flight on %d connections, %d keys\n\n", inFlight, connections, busyKeys)
	fmt.Println("| counters in | calls/s per core of the service | store, CPU ms per 10,000 calls | " +
		"all CPU, × empty handler | p99 ms |\n|---|---|---|---|---|")
	empty := 0.0
	for i, c := range overviewCases {
		if i > 0 && !b.only.MatchString(c.name) || c.redis && !c.database && b.redis == nil {
			continue
		}
		r, err := b.overviewResult(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if i == 0 {
			empty = r.cpu(0)
		}
		fmt.Printf("| %s | %s | %.0f | %.2f | %.1f |\n", c.name, thousands(1e6/r.cpu(0)), r.cpu(1)*10,
			(r.cpu(0)+r.cpu(1))/empty, r.at(0.99))
	}
	return nil
}

// overviewResult measures a row. Shares that follow the traffic know it after two seconds.
func (b *bench) overviewResult(ctx context.Context, c overviewCase) (r result, err error) {
	run := func(url string, pids ...int) error {
		t, err := startOn(ctx, c.benchCase, url, pids...)
		if err != nil {
			return err
		}
		defer t.close()
		if _, err := t.load.run(ctx, after(3*b.warmUp)); err != nil {
			return err
		}
		r, err = t.measure(ctx, after(b.length))
		return err
	}
	switch {
	case c.database:
		skipped, err := withServers("overview", func(tb *benchTB) error {
			db, err := floorPostgres(tb)
			if err != nil {
				return err
			}
			defer db.raw.Close()
			if err := db.prepare(ctx); err != nil {
				return err
			}
			return run(db.url, db.pid)
		})
		if skipped != "" {
			return r, fmt.Errorf("not run: %s", skipped)
		}
		return r, err
	case c.redis:
		return r, run(b.redis.url+"?layout="+cmp.Or(c.layout, "list"), b.redis.pid)
	}
	return r, run("")
}

// thousands writes a rate, rounded to hundreds.
func thousands(n float64) string {
	text := strconv.Itoa(int(n+50) / 100 * 100)
	if len(text) > 3 {
		text = text[:len(text)-3] + "," + text[len(text)-3:]
	}
	return text
}

// A bar is a row of the overview, as a picture.
type bar struct {
	Name, Rate, Store string
	Y, Length, End    int
}

// overviewBars reads the overview out of a page. A bar is as long as its row answers calls per second.
func overviewBars(page string) (bars []bar, err error) {
	_, rest, _ := strings.Cut(page, "| counters in |")
	most := 0.0
	var rates []float64
	for _, line := range strings.Split(rest, "\n")[2:] {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 5 {
			break
		}
		rate, err := strconv.ParseFloat(strings.ReplaceAll(cells[1], ",", ""), 64)
		if err != nil {
			return nil, fmt.Errorf("row %q: %w", line, err)
		}
		most, rates = max(most, rate), append(rates, rate)
		bars = append(bars, bar{Name: strings.ReplaceAll(cells[0], "`", ""), Rate: cells[1], Store: cells[2]})
	}
	for i := range bars {
		bars[i].Y, bars[i].Length = 64+34*i, max(int(rates[i]/most*330), 1)
		bars[i].End = 240 + bars[i].Length + 8
	}
	return bars, nil
}

// overviewPicture draws the overview of a page as SVG.
func overviewPicture(page string) (string, error) {
	bars, err := overviewBars(page)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = picture.Execute(&b, struct {
		Bars   []bar
		Height int
	}{bars, 76 + 34*len(bars)})
	return b.String(), err
}

var picture = template.Must(template.New("svg").Parse(`<svg xmlns="http://www.w3.org/2000/svg" width="760" ` +
	`height="{{.Height}}" font-family="sans-serif" font-size="14">
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="20" y="28" font-size="16" font-weight="bold">Calls per second and core of the service</text>
<text x="20" y="48" fill="#555555">and milliseconds of the store's CPU per 10,000 calls</text>
{{range .Bars}}<text x="20" y="{{.Y}}" dy="17">{{.Name}}</text>
<rect x="240" y="{{.Y}}" width="{{.Length}}" height="24" fill="#3b7dd8"/>
<text x="{{.End}}" y="{{.Y}}" dy="17">{{.Rate}}{{if ne .Store "0"}}, store {{.Store}} ms{{end}}</text>
{{end}}</svg>
`))
