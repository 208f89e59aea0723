package plan

import "testing"

const benchUs = 1_795_262_401_234_567

func BenchmarkWindowStart(b *testing.B) {
	us := int64(benchUs)
	for b.Loop() {
		us += WindowStart(us, 4000) & 1023
	}
}

func BenchmarkElapsed(b *testing.B) {
	us := int64(benchUs)
	for b.Loop() {
		us += Elapsed(us, 4000)
	}
}

func BenchmarkFirstCapacity(b *testing.B) {
	elapsed := int64(1)
	for b.Loop() {
		elapsed = FirstCapacity(MaxPerWindow, elapsed, MaxSizeMs) & 0xffff
	}
}

func BenchmarkDraw(b *testing.B) {
	random := uint32(1)
	for b.Loop() {
		random = uint32(Draw(random, 0, MaxSizeMs))
	}
}

func BenchmarkStratum(b *testing.B) {
	random := uint32(1)
	for b.Loop() {
		random = uint32(Stratum(random, 50, 100, 100, 0, 4000))
	}
}

func BenchmarkChunkStart(b *testing.B) {
	start := int64(benchUs / 1000)
	for b.Loop() {
		start += ChunkStart(start, 4000, 100) & 1023
	}
}

func BenchmarkParseSize(b *testing.B) {
	for b.Loop() {
		if _, err := ParseSize("PT1M30.5S"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseCalendar(b *testing.B) {
	for b.Loop() {
		mustCalendar(b, berlin)
	}
}

func BenchmarkSpan(b *testing.B) {
	for name, c := range map[string]struct {
		calendar, start string
		none            bool
	}{
		"open":   {calendar: berlin, start: "2026-11-23 12:00:00Z"},
		"closed": {calendar: berlin, start: "2026-11-28 12:00:00Z"},
		"always": {calendar: `{"zone":"Europe/Berlin"}`, start: "2026-11-28 12:00:00Z"},
		"never":  {calendar: berlin, start: "2026-11-28 12:00:00Z", none: true}, // worst case: 400 days
	} {
		b.Run(name, func(b *testing.B) {
			calendar, start, size := mustCalendar(b, c.calendar), at(b, c.start), int64(4000)
			if c.none {
				size = MaxSizeMs
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, _, ok := calendar.Span(start, size); ok == c.none {
					b.Fatal("found is", ok)
				}
			}
		})
	}
}
