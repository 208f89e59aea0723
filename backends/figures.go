package backends

// A Figure is a number that a store or a layer keeps of itself, for metrics.
type Figure struct {
	// Name and Help are those of the metric. Names are in Prometheus' style.
	Name, Help string
	// Counter says that the figure only grows.
	Counter bool
	// Value returns the present figure. It may be called concurrently.
	Value func() float64
}

// Figured is a store or a layer with figures. They are asked for once.
type Figured interface{ Figures() []Figure }

// A Number is what a figure is made of.
type Number interface {
	~int | ~int64 | ~uint32 | ~uint64 | ~float64
}

// Gauge returns a figure that rises and falls.
func Gauge[N Number](name, help string, value func() N) Figure {
	return Figure{Name: name, Help: help, Value: func() float64 { return float64(value()) }}
}

// Counter returns a figure that only grows.
func Counter[N Number](name, help string, value func() N) Figure {
	f := Gauge(name, help, value)
	f.Counter = true
	return f
}
