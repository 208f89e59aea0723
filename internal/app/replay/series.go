package replay

import "github.com/headgate-rls/headgate/limit"

// maxPoints bounds the points of a series.
const maxPoints = 400

// A series is figures over time, in steps that grow with the time.
type series struct {
	start  limit.Instant
	step   limit.Instant
	points []int64
	peaks  bool // a point is the largest figure of its step, not their sum
}

// add adds a figure. Times do not go back before the first.
func (s *series) add(at limit.Instant, n int64) {
	if s.step == 0 {
		s.start, s.step = at, 1_000_000
	}
	i := int(max(at-s.start, 0) / s.step)
	for i >= maxPoints {
		s.fold()
		i = int((at - s.start) / s.step)
	}
	for len(s.points) <= i {
		s.points = append(s.points, 0)
	}
	s.points[i] = s.join(s.points[i], n)
}

func (s *series) join(a, b int64) int64 {
	if s.peaks {
		return max(a, b)
	}
	return a + b
}

// fold doubles the step.
func (s *series) fold() {
	n := (len(s.points) + 1) / 2
	for i := range n {
		v := s.points[2*i]
		if 2*i+1 < len(s.points) {
			v = s.join(v, s.points[2*i+1])
		}
		s.points[i] = v
	}
	s.points, s.step = s.points[:n], s.step*2
}
