package replay

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"time": func(at limit.Instant) string { return at.Time().Format("2006-01-02 15:04:05 UTC") },
}).Parse(pageText))

// WriteHTML writes a report as a page that needs nothing else.
func WriteHTML(out io.Writer, r *Report) error {
	view := struct {
		*Report
		Refusals *chart
		Old, New string
		Charts   []keyChart
	}{Report: r, Old: r.percent(r.RefusedOld), New: r.percent(r.RefusedNew)}
	view.Refusals = newChart(curve{"old", &r.before}, curve{"new", &r.after})
	for _, k := range r.Keys {
		c := newChart(curve{"used", &k.used})
		if c != nil {
			c.line("old", k.LimitOld)
			c.line("new", k.LimitNew)
			if k.WouldFitWith != nil {
				c.line("fits", *k.WouldFitWith)
			}
			c.finish()
		}
		view.Charts = append(view.Charts, keyChart{k, c})
	}
	return page.Execute(out, view)
}

type keyChart struct {
	*KeyRow
	Chart *chart
}

type curve struct {
	class string
	*series
}

// The size of the drawing in a chart.
const width, height = 800, 160

// A chart is curves over one time, as SVG draws them.
type chart struct {
	From, To limit.Instant
	Step     string
	Most     int64
	Curves   []path
	Lines    []level

	curves []curve
	step   limit.Instant
}

type path struct{ Class, Points string }

type level struct {
	Class string
	Value int64
	Y     string
}

// newChart returns a chart of curves; nil if all are empty.
func newChart(curves ...curve) *chart {
	c := &chart{curves: curves}
	for _, s := range curves {
		if len(s.points) == 0 {
			continue
		}
		if c.From == 0 || s.start < c.From {
			c.From = s.start
		}
		c.step = max(c.step, s.step)
		c.To = max(c.To, s.start+limit.Instant(len(s.points))*s.step)
	}
	if c.From == 0 {
		return nil
	}
	for _, s := range curves { // in steps of one length, so that sums compare
		for len(s.points) > 0 && s.step < c.step {
			s.fold()
		}
		for _, n := range s.points {
			c.Most = max(c.Most, n)
		}
	}
	c.Step = (time.Duration(c.step) * time.Microsecond).String()
	c.finish()
	return c
}

// line adds a level.
func (c *chart) line(class string, n int64) {
	if n > 0 {
		c.Lines = append(c.Lines, level{Class: class, Value: n})
		c.Most = max(c.Most, n)
	}
}

// finish draws.
func (c *chart) finish() {
	c.Curves = nil
	y := func(n int64) string { return fmt.Sprintf("%.1f", height-float64(n)*height/float64(max(c.Most, 1))) }
	for i := range c.Lines {
		c.Lines[i].Y = y(c.Lines[i].Value)
	}
	for _, s := range c.curves {
		var b strings.Builder
		for i, n := range s.points {
			for _, at := range []limit.Instant{0, s.step} {
				x := float64(s.start+limit.Instant(i)*s.step+at-c.From) * width / float64(c.To-c.From)
				fmt.Fprintf(&b, "%.1f,%s ", x, y(n))
			}
		}
		c.Curves = append(c.Curves, path{s.class, b.String()})
	}
}
