package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A frame is a function in a flame graph: how many samples were in it, and in what it called.
type frame struct {
	name    string
	kernel  bool
	samples int
	calls   map[string]*frame
}

func (f *frame) call(name string) *frame {
	if f.calls == nil {
		f.calls = map[string]*frame{}
	}
	c := f.calls[name]
	if c == nil {
		c = &frame{name: name, kernel: f.kernel}
		f.calls[name] = c
	}
	return c
}

// readStacks adds the stacks that perf script prints. Of what the kernel does it keeps the system call.
func readStacks(in io.Reader, all *frame) error {
	var process string
	var stack []string // the innermost function first
	end := func() {
		at := all
		if process == "" {
			return
		}
		at.samples++
		program := "headgate" // which this program serves
		if process == "redis-server" {
			program = "Redis"
		}
		at = at.call(program)
		at.samples++
		for _, line := range slices.Backward(stack) {
			name, kernel := functionOf(line)
			if name == "" {
				continue
			}
			at = at.call(name)
			at.kernel = at.kernel || kernel
			at.samples++
			if kernel {
				break
			}
		}
		process, stack = "", nil
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		switch line := lines.Text(); {
		case line == "":
			end()
		case line[0] == '\t' || line[0] == ' ':
			stack = append(stack, strings.TrimSpace(line))
		default:
			process = strings.Fields(line)[0]
		}
	}
	end()
	return lines.Err()
}

// functionOf returns the function that a line of a stack names; "" if none is known, or it is only how the kernel is
// entered.
func functionOf(line string) (name string, kernel bool) {
	_, name, _ = strings.Cut(line, " ")
	name, file, _ := strings.Cut(name, " (")
	if i := strings.LastIndex(name, "+0x"); i > 0 {
		name = name[:i]
	}
	kernel = strings.HasPrefix(file, "[kernel")
	if name == "[unknown]" || strings.HasPrefix(name, "entry_SYSCALL") || name == "do_syscall_64" {
		return "", kernel
	}
	return strings.TrimPrefix(name[strings.LastIndex(name, "/")+1:], "__x64_sys_"), kernel
}

// The picture of a flame graph, in pixels. What is narrower than least is left out.
const flameWidth, flameRow, flameLeast = 1200.0, 17.0, 2.5

// drawFlame draws a frame and what it calls below it. A box is as wide as its share of all samples.
func drawFlame(out io.Writer, all *frame) {
	depth, total := 0, float64(max(all.samples, 1))
	var boxes strings.Builder
	var draw func(f *frame, x float64, row int, color string)
	draw = func(f *frame, x float64, row int, color string) {
		width := float64(f.samples) / total * flameWidth
		if width < flameLeast {
			return
		}
		if f.name == "Redis" && row == 1 {
			color = "#f2b8a2"
		}
		if f.kernel {
			color = "#d0d5db"
		}
		depth = max(depth, row+1)
		text := fmt.Sprintf("%s %.1f %%", f.name, 100*float64(f.samples)/total)
		shown := text
		if room := int(width / 6.4); len(shown) > room {
			shown = shown[:max(room-1, 0)]
		}
		fmt.Fprintf(&boxes, "<g><title>%s</title><rect x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%.0f\" fill=\"%s\"/>",
			html.EscapeString(text), x, float64(row)*flameRow, max(width-0.5, 0.5), flameRow-1, color)
		if len(shown) > 2 {
			fmt.Fprintf(&boxes, "<text x=\"%.1f\" y=\"%.0f\">%s</text>", x+2, float64(row)*flameRow+12,
				html.EscapeString(shown))
		}
		boxes.WriteString("</g>\n")
		for _, c := range f.widest() {
			draw(c, x, row+1, color)
			x += float64(c.samples) / total * flameWidth
		}
	}
	draw(all, 0, 0, "#a9c8ef")
	fmt.Fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "+
		"font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n%s</svg>\n",
		flameWidth, float64(depth)*flameRow, boxes.String())
}

// widest returns what a frame calls, the largest first.
func (f *frame) widest() []*frame {
	return slices.SortedFunc(maps.Values(f.calls), func(a, b *frame) int {
		return cmp.Or(b.samples-a.samples, strings.Compare(a.name, b.name))
	})
}

// flameTable samples where the first case in Redis that -run matches spends its CPU time, in the service and in Redis,
// and draws it to -flame. It needs perf of Linux, and the right to use it.
func (b *bench) flameTable(ctx context.Context) error {
	if b.flame == "" {
		fmt.Println("\nno flame graph: -flame names no file")
		return nil
	}
	if b.redis == nil {
		return errors.New("needs redis-server")
	}
	i := slices.IndexFunc(cases, func(c benchCase) bool { return c.redis && b.only.MatchString(c.name) })
	if i < 0 {
		return errors.New("-run matches no case in Redis")
	}
	t, err := b.start(ctx, cases[i])
	if err != nil {
		return err
	}
	defer t.close()
	all, err := t.stacks(ctx, b.length)
	if err != nil {
		return err
	}
	fmt.Printf("\nwhere the CPU time of %s is spent, %d samples\n\n", cases[i].name, all.samples)
	for _, program := range all.widest() {
		fmt.Printf("%5.1f %% %s\n", 100*float64(program.samples)/float64(all.samples), program.name)
	}
	file, err := os.Create(b.flame)
	if err != nil {
		return err
	}
	drawFlame(file, all)
	return file.Close()
}

// unwinds says how perf finds the callers in the service and in Redis: Go keeps frame pointers, Redis does not.
var unwinds = []string{"fp", "dwarf,16384"}

// stacks samples the processes of a case under its load, 499 times per second of CPU time.
func (t *target) stacks(ctx context.Context, length time.Duration) (*frame, error) {
	dir, err := os.MkdirTemp("", "hgbench")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := func(i int) string { return filepath.Join(dir, unwinds[i]) }
	var running sync.WaitGroup
	wrong := make([]error, len(t.pids)+1)
	running.Go(func() { _, wrong[len(t.pids)] = t.load.run(ctx, after(length+time.Second)) })
	for i, pid := range t.pids {
		running.Go(func() {
			record := exec.CommandContext(ctx, "perf", "record", "-q", "-e", "cpu-clock", "-F", "499", "-o", file(i),
				"--call-graph", unwinds[i], "-p", fmt.Sprint(pid), "--", "sleep", fmt.Sprint(length.Seconds()))
			if text, err := record.CombinedOutput(); err != nil {
				wrong[i] = fmt.Errorf("perf record: %w: %s", err, text)
			}
		})
	}
	running.Wait()
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	all := &frame{name: "all"}
	for i := range t.pids {
		if err := addStacks(ctx, file(i), all); err != nil {
			return nil, fmt.Errorf("perf script: %w", err)
		}
	}
	return all, nil
}

// addStacks adds the stacks in a file of perf record.
func addStacks(ctx context.Context, file string, all *frame) error {
	script := exec.CommandContext(ctx, "perf", "script", "-i", file, "-F", "comm,ip,sym,dso")
	out, err := script.StdoutPipe()
	if err != nil {
		return err
	}
	if err := script.Start(); err != nil {
		return err
	}
	return errors.Join(readStacks(out, all), script.Wait())
}
