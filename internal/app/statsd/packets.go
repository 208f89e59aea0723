package statsd

import (
	"net"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// packets writes lines, as many to a packet as it holds. After an error it writes nothing more.
type packets struct {
	conn  net.Conn
	most  int             // bytes of a packet
	end   string          // of a line
	known map[key]float64 // what the collector knows, once it is sent
	err   error
	long  int // lines that no packet holds

	line, packet []byte
	inPacket     []*sample
}

// put puts the line of a sample into a packet, unless there is nothing to say since before.
func (p *packets) put(sm *sample, before float64, name, tags string) {
	p.line = p.line[:0]
	switch since := sm.value - before; {
	case sm.kind == metrics.IsGauge:
		p.text(sm, name, tags)
		p.line = append(strconv.AppendInt(p.line, int64(sm.value), 10), "|g"...)
	case since == 0:
		return
	default:
		if since < 0 { // the series went, and came again
			since = sm.value
		}
		p.text(sm, name, tags)
		p.since(sm, since)
	}
	p.line = append(p.line, p.end...)
	if len(p.line) > p.most {
		p.long++
		p.known[sm.key] = sm.value
		return
	}
	if len(p.packet)+len(p.line) > p.most {
		p.write()
	}
	p.packet = append(p.packet, p.line...)
	p.inPacket = append(p.inPacket, sm)
}

// text begins a line with the name of a sample.
func (p *packets) text(sm *sample, name, tags string) {
	before, after, _ := strings.Cut(name, "{}")
	p.line = append(p.line, before...)
	for i, label := range sm.labels {
		if i > 0 && label != "" {
			p.line = append(p.line, '.')
		}
		for _, c := range []byte(label) { // clients may choose some, and must not begin another line
			if c < ' ' {
				c = '_'
			}
			p.line = append(p.line, c)
		}
	}
	p.line = append(append(append(p.line, after...), tags...), ':')
}

// since adds to a line what a counter has counted. Observations of a histogram are one line, with the part of them
// that it stands for as its sample rate.
func (p *packets) since(sm *sample, n float64) {
	if sm.kind == metrics.IsCounter {
		p.line = append(strconv.AppendInt(p.line, int64(n), 10), "|c"...)
		return
	}
	p.line = append(strconv.AppendFloat(p.line, sm.size, 'f', -1, 64), "|ms"...)
	if n > 1 {
		p.line = strconv.AppendFloat(append(p.line, "|@"...), 1/n, 'f', -1, 64)
	}
}

// write sends what is in the packet.
func (p *packets) write() {
	if len(p.packet) > 0 && p.err == nil {
		_, p.err = p.conn.Write(p.packet)
	}
	for _, sm := range p.inPacket {
		if p.err == nil {
			p.known[sm.key] = sm.value
		}
	}
	p.packet, p.inPacket = p.packet[:0], p.inPacket[:0]
}
