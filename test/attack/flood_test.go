package attack

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// floods are connections that send as many requests as they can. A bystander's calls are answered in time by and large:
// connections take turns, and those of HTTP leave half of the cores to gRPC.
var floods = []attack{
	{name: "JSON on 20 connections", run: floodOfJSON},
	{name: "gRPC on 20 connections", run: floodOfGRPC},
	{name: "slots on 20 connections", run: floodOfSlots,
		flags: []string{"--slots", slotsInFile, "--slots-seed", "100/PT4S"}},
}

// lateInFlood is how many of the bystander's calls may be late in a flood, on a machine that the flood shares.
const lateInFlood = 0.1

func TestFloodsLeaveTurnsToOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs headgate for some seconds")
	}
	for _, a := range floods {
		t.Run(strings.ReplaceAll(a.name, " ", "_"), func(t *testing.T) {
			a.flags = slices.Clone(a.flags)
			for i := range a.flags {
				a.flags[i] = strings.ReplaceAll(a.flags[i], slotsInFile, "sqlite:"+filepath.Join(t.TempDir(), "slots.db"))
			}
			r := a.measure(t)
			t.Log("\n" + table([]result{r}))
			r.inTime(t, lateInFlood)
		})
	}
}

// inTime fails the test if more than a share of the bystander's calls were late during the attack.
func (r *result) inTime(t *testing.T, most float64) {
	t.Helper()
	t.Logf("%d of %d calls of the bystander were late, failed or answered by policy (%v)", r.late, r.during,
		r.bystander.first)
	if float64(r.late) > most*float64(r.during) || r.during == 0 {
		t.Errorf("want at most %v of them", most)
	}
}

// floodOfJSON sends requests in JSON on 20 connections, without waiting for answers.
func floodOfJSON(g *target) {
	body := `{"domain":"attack","descriptors":[{"entries":[{"key":"free","value":"attacker"}]}]}`
	one := fmt.Sprintf("POST /json HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		len(body), body)
	g.flood(g.hg.HTTP, strings.Repeat(one, 64))
}

// slotsInFile stands for a database of slots.
const slotsInFile = "SLOTS"

// floodOfSlots asks for the slots of ever the same event, and for lists of slots.
func floodOfSlots(g *target) {
	body := fmt.Sprintf(`{"eventId":"e","configName":"default","requestedTime":%q}`, time.Now().UTC().Format(time.RFC3339))
	one := fmt.Sprintf("POST /api/v1/slots HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: "+
		"%d\r\n\r\n%sGET /api/v1/slots?limit=1000 HTTP/1.1\r\nHost: a\r\n\r\n", len(body), body)
	g.flood(g.hg.HTTP, strings.Repeat(one, 64))
}

// floodOfGRPC does the same over gRPC, with as many calls on their way as a connection may have.
func floodOfGRPC(g *target) { g.flood(g.hg.GRPC, "") }

// envFlood has a child of the test send a text to an address, again and again; without a text, calls of gRPC. A process
// of its own does not keep the bystander, which is in this one, from its turns.
const envFlood = "HEADGATE_ATTACK_FLOOD"

func (g *target) flood(address, text string) {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), envFlood+"="+address)
	child.Stdin = strings.NewReader(text)
	out, err := child.CombinedOutput()
	if err != nil {
		g.t.Errorf("%v: %s", err, out)
	}
	g.note("%s", out)
}

// floodConnections is how many connections a flood has.
const floodConnections = 20

// floodChild sends what it reads, until a time, and prints how much came back.
func floodChild(address string) {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	if len(text) == 0 {
		g := &target{hg: &testenv.Headgate{GRPC: address}}
		floodOfCalls(g, floodConnections)
		fmt.Print(strings.Join(g.notes, "; "))
		return
	}
	end := time.Now().Add(size(2*time.Second, 5*time.Second))
	var total atomic.Int64
	var done sync.WaitGroup
	for range floodConnections {
		nc, err := net.Dial("tcp", address)
		if err != nil {
			panic(err)
		}
		defer nc.Close()
		_ = nc.SetDeadline(end)
		done.Go(func() {
			for err := error(nil); err == nil; {
				_, err = nc.Write(text)
			}
		})
		done.Go(func() {
			n, _ := io.Copy(io.Discard, nc) // until the end
			total.Add(n)
		})
	}
	done.Wait()
	fmt.Printf("%d KiB of answers", total.Load()>>10)
}
