package accesslog

import (
	"slices"
	"testing"

	datapb "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	als "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// byGeneratedCode is decode for messages that are in order.
func byGeneratedCode(s *server, m *als.StreamAccessLogsMessage) *changes {
	o := new(changes)
	if o.node = m.GetIdentifier().GetNode().GetId(); len(o.node) > maxOwner {
		o.node = ""
	}
	for i, e := range m.GetHttpLogs().GetLogEntry() {
		p := e.GetCommonProperties()
		var tokens []string
		for _, namespace := range s.Namespaces {
			for _, key := range s.Keys {
				v, ok := p.GetMetadata().GetFilterMetadata()[namespace].GetFields()[key].GetKind().(*structpb.Value_StringValue)
				if ok && v.StringValue != "" && len(v.StringValue) <= leases.MaxLen {
					tokens = append(tokens, v.StringValue)
				}
			}
		}
		t := p.GetAccessLogType()
		//lint:ignore SA1019 Envoy still sends it
		intermediate := p.GetIntermediateLogEntry()
		ends := t == datapb.AccessLogType_DownstreamEnd || t == datapb.AccessLogType_NotSet && !intermediate
		renews := !ends && (t == datapb.AccessLogType_DownstreamPeriodic || intermediate)
		switch {
		case i >= s.MaxEntries:
			o.events[leases.EntryDropped]++
		case len(tokens) == 0 || !ends && !renews:
			o.events[leases.EntryIgnored]++
		case renews:
			o.events[leases.EntryRenews]++
			o.renew = append(o.renew, tokens...)
		default:
			o.events[leases.EntryReleases]++
			o.release = append(o.release, tokens...)
		}
	}
	return o
}

// FuzzDecode: no message makes decode fail, and one that is in order means
// what generated code makes of it.
func FuzzDecode(f *testing.F) {
	s := newServer(newRecorder(), Config{Namespaces: []string{rateLimit, "n"}, Keys: []string{"lease", "k"},
		MaxEntries: 4})
	two := entryWith(end, map[string]map[string]any{rateLimit: {"lease": "a", "k": "b"}, "n": {"k": "c", "lease": 1},
		"": {"": ""}})
	for _, m := range []*als.StreamAccessLogsMessage{
		{},
		from("envoy-1", message(entry(periodic, "a"), entry(end, "b"), entry(end, nil), entry(end, true), entry(end, "e"))),
		message(two, &datapb.HTTPAccessLogEntry{}, &datapb.HTTPAccessLogEntry{CommonProperties: &datapb.AccessLogCommon{}}),
	} {
		encoded, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
		f.Add(encoded[:len(encoded)/2])
	}
	f.Add([]byte{0x12, 0x04, 0x0a, 0x02, 0x0a, 0x09})
	f.Add([]byte{0x0b, 0x0c})
	f.Fuzz(func(t *testing.T, data []byte) {
		o := s.decode(data)
		for _, token := range slices.Concat(o.renew, o.release) {
			if token == "" || len(token) > leases.MaxLen {
				t.Errorf("a token of %d characters", len(token))
			}
		}
		m := new(als.StreamAccessLogsMessage)
		if proto.Unmarshal(data, m) != nil {
			return
		}
		// Encoded again, every field is there once at most, as Envoy sends it.
		encoded, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got, want := s.decode(encoded), byGeneratedCode(s, m)
		for _, o := range []*changes{got, want} {
			slices.Sort(o.renew) // maps have no order
			slices.Sort(o.release)
		}
		if got.node != want.node || !slices.Equal(got.renew, want.renew) || !slices.Equal(got.release, want.release) ||
			got.events != want.events {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	s := newServer(newRecorder(), Config{})
	list := make([]*datapb.HTTPAccessLogEntry, 16)
	for i := range list {
		list[i] = entry(end,
			"AQAAAAB_s9iHh-TqAxgAAAAAAAAAAEN6cW5kS0dHWmFqV0tYDzE6ZDY6dGVuYW50MTp4AWMGdGVuYW50wKkHZmFrZS1zaWduYXR1cmU")
	}
	encoded, err := proto.Marshal(from("envoy-1", message(list...)))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("by hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.decode(encoded)
		}
		perEntry(b, len(list))
	})
	b.Run("by generated code", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m := new(als.StreamAccessLogsMessage)
			if err := proto.Unmarshal(encoded, m); err != nil {
				b.Fatal(err)
			}
			byGeneratedCode(s, m)
		}
		perEntry(b, len(list))
	})
}

func perEntry(b *testing.B, n int) {
	b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "entries/s")
}
