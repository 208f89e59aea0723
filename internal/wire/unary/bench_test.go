package unary

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"

	"github.com/headgate-rls/headgate/test/rawcodec"
)

// serveVariable makes the test binary a server of that kind, for benchmarks:
// only so can its CPU time be measured apart from the client's.
const serveVariable = "UNARY_TEST_SERVE"

func TestMain(m *testing.M) {
	if kind := os.Getenv(serveVariable); kind != "" {
		if err := serveChild(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serveChild serves until its input ends, and answers each line of input with
// the CPU time used, the bytes allocated and the objects allocated until then.
func serveChild(kind string) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	switch kind {
	case "grpc":
		go grpcServer().Serve(ln)
	default:
		s, err := New(Config{Handlers: testHandlers()})
		if err != nil {
			return err
		}
		go s.Serve(ln)
	}
	fmt.Println(ln.Addr())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if in.Text() == "gc" {
			runtime.GC()
			runtime.GC()
		}
		var use syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
			return err
		}
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		fmt.Println(use.Utime.Nano()+use.Stime.Nano(), mem.Mallocs, mem.HeapInuse+mem.StackInuse)
	}
	return in.Err()
}

// grpcServer is grpc-go with an empty handler for methodEcho.
func grpcServer() *grpc.Server {
	srv := grpc.NewServer(grpc.ForceServerCodecV2(rawcodec.Codec{}))
	srv.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Test",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Echo", Handler: func(_ any, _ context.Context, dec func(any) error,
			_ grpc.UnaryServerInterceptor) (any, error) {
			message := new([]byte)
			return message, dec(message)
		}}},
	}, nil)
	return srv
}

// A child is a server in a process of its own.
type child struct {
	addr string
	in   io.WriteCloser
	out  *bufio.Scanner
}

func startChild(tb testing.TB, kind string) *child {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveVariable+"="+kind)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			tb.Error(err)
		}
	})
	c := &child{in: in, out: bufio.NewScanner(out)}
	if !c.out.Scan() {
		tb.Fatal("the server did not start")
	}
	c.addr = c.out.Text()
	return c
}

// usage returns the CPU time in ns, the objects allocated so far, and the bytes
// of memory in use.
func (c *child) usage(tb testing.TB, command string) (cpu, mallocs, memory int64) {
	tb.Helper()
	fmt.Fprintln(c.in, command)
	if !c.out.Scan() {
		tb.Fatal("the server is gone")
	}
	n := [3]int64{}
	for i, field := range strings.Fields(c.out.Text()) {
		var err error
		if n[i], err = strconv.ParseInt(field, 10, 64); err != nil {
			tb.Fatal(err)
		}
	}
	return n[0], n[1], n[2]
}

// BenchmarkCPU measures the server's CPU time per call, beside that of grpc-go
// with an empty handler: 64 calls in flight on 2 connections. The clients are
// grpc-go, and a light one that sends what it can with one write, as Envoy
// does.
func BenchmarkCPU(b *testing.B) {
	for _, bench := range []struct{ name, kind, method string }{
		{"grpc-go", "grpc", methodEcho},
		{"inline", "unary", methodEcho},
		{"worker", "unary", methodWorker},
	} {
		for _, client := range []string{"grpc-go", "light"} {
			b.Run("server="+bench.name+"/client="+client, func(b *testing.B) {
				c := startChild(b, bench.kind)
				run := runGRPC(b, c.addr, bench.method)
				if client == "light" {
					run = runLight(b, c.addr, bench.method)
				}
				run(1000)
				cpu, mallocs, _ := c.usage(b, "")
				b.ResetTimer()
				run(b.N)
				b.StopTimer()
				cpu2, mallocs2, _ := c.usage(b, "")
				b.ReportMetric(float64(cpu2-cpu)/float64(b.N)/1000, "cpu-µs/call")
				b.ReportMetric(float64(mallocs2-mallocs)/float64(b.N), "server-allocs/call")
			})
		}
	}
}

var benchRequest = []byte(strings.Repeat("r", 150))

func runGRPC(b *testing.B, addr, method string) func(n int) {
	var conns [2]*grpc.ClientConn
	for i := range conns {
		conns[i] = dial(b, addr)
	}
	return func(n int) {
		var left atomic.Int64
		left.Store(int64(n))
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				var out []byte
				for left.Add(-1) >= 0 {
					ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
					err := conns[i%2].Invoke(ctx, method, &benchRequest, &out)
					cancel()
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

func runLight(b *testing.B, addr, method string) func(n int) {
	peers := [2]*peer{newPeer(b, addr), newPeer(b, addr)}
	return func(n int) {
		var wg sync.WaitGroup
		for i, p := range peers {
			wg.Go(func() { p.pingPong(method, 32, n/2+i*(n%2)) })
		}
		wg.Wait()
	}
}

// pingPong does n calls with a number of them in flight. It sends a new one
// for each that has been answered, all with one write once it has read all
// that is there.
func (p *peer) pingPong(method string, inFlight, n int) {
	sent, answered, window := 0, 0, 0
	for sent < min(inFlight, n) {
		p.call(method, benchRequest)
		sent++
	}
	p.flush()
	for answered < n {
		if p.in.Buffered() == 0 {
			p.flush()
		}
		f := p.read()
		if data, ok := f.(*http2.DataFrame); ok {
			if window += int(data.Length); window > 10_000 {
				p.must(p.fr.WriteWindowUpdate(0, uint32(window)))
				window = 0
			}
		}
		if h, ok := f.(*http2.HeadersFrame); ok && h.StreamEnded() {
			answered++
			if sent < n {
				p.call(method, benchRequest)
				sent++
			}
		}
	}
}
