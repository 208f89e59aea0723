package metrics

import (
	"fmt"
	"slices"
)

// A Kind of metric.
type Kind string

// The kinds.
const (
	IsCounter   Kind = "counter"
	IsGauge     Kind = "gauge"
	IsHistogram Kind = "histogram"
)

// A Row is one metric: what there is to know of it, and how to read it.
type Row struct {
	Name, Help string // in Prometheus' style
	Kind       Kind
	Labels     Labels
	// Value returns the present value of a metric without labels.
	Value func() float64
	// Each calls emit for each series of a metric with labels. Both may be called concurrently.
	Each func(emit Emit)
	// Ragged says that series may leave out the last labels.
	Ragged bool
}

// Emit takes one series: the values of its labels, and its value, or what a histogram has counted.
type Emit func(labels []string, value float64, h *Counts)

// Counts are what a histogram has counted.
type Counts struct {
	Count   uint64
	Sum     float64
	Buckets map[float64]uint64 // up to each bound
}

// A Label of a metric. Values are all that it can have, nil if that is not known beforehand.
type Label struct {
	Name   string
	Values []string
}

// Labels are the labels of a metric.
type Labels []Label

// Open returns labels whose values are not known beforehand.
func Open(names ...string) Labels {
	var list Labels
	for _, name := range names {
		list = append(list, Label{Name: name})
	}
	return list
}

// Closed returns a label with all its values.
func Closed(name string, values ...string) Labels { return Labels(nil).Closed(name, values...) }

// Closed adds a label with all its values.
func (l Labels) Closed(name string, values ...string) Labels {
	return append(slices.Clone(l), Label{name, values})
}

// Names returns the names of the labels.
func (l Labels) Names() []string {
	var names []string
	for _, label := range l {
		names = append(names, label.Name)
	}
	return names
}

// Texts returns the texts of an enumeration's values from first to below end.
func Texts[T interface {
	~uint8
	fmt.Stringer
}](first, end T) []string {
	var list []string
	for v := first; v < end; v++ {
		list = append(list, v.String())
	}
	return list
}

// A Number is what a metric without labels may be made of.
type Number interface {
	~int | ~int64 | ~uint32 | ~uint64 | ~float64
}

// GaugeOf returns the row of a figure that rises and falls.
func GaugeOf[N Number](name, help string, value func() N) Row {
	return Row{Name: name, Help: help, Kind: IsGauge, Value: func() float64 { return float64(value()) }}
}

// CounterOf returns the row of a figure that only grows.
func CounterOf[N Number](name, help string, value func() N) Row {
	r := GaugeOf(name, help, value)
	r.Kind = IsCounter
	return r
}

// Build returns the row that says which version runs.
func Build(name, version string) Row {
	return Row{Name: name, Help: "Always 1; the label has the version.", Kind: IsGauge, Labels: Open("version"),
		Each: func(emit Emit) {
			emit([]string{version}, 1, nil)
		}}
}

// Truth is 1 for what is true, else 0.
func Truth(b bool) int {
	if b {
		return 1
	}
	return 0
}
