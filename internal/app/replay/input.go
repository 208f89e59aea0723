package replay

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"container/heap"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// maxLine bounds a line, in bytes.
const maxLine = 1 << 20

// maxWaiting bounds the lines of a file that wait for others that may precede them.
const maxWaiting = 4 << 20

// shownBad is how many broken lines are named.
const shownBad = 10

// A BadLine is a line that could not be read.
type BadLine struct {
	File  string `json:"file"`
	Line  int    `json:"line"`
	Error string `json:"error"`
}

func (b BadLine) String() string { return fmt.Sprintf("%s:%d: %s", b.File, b.Line, b.Error) }

// An input is the lines of all files, in the order of their times.
type input struct {
	files   []*file
	reorder limit.Instant
	maxBad  int
	total   int64 // bytes of all files; 0: not known

	bad     int
	badSome []BadLine
	back    int // lines whose time was before one that had been decided
	backAt  string
	last    limit.Instant
}

// open opens files for one pass. copies take the place of some. sizes bounds what is read of
// each file, so that every pass reads the same lines of a file that grows.
func open(names []string, copies map[string]*os.File, conf *Options, sizes map[string]int64) (in *input, err error) {
	in = &input{reorder: limit.Instant(conf.Reorder / time.Microsecond), maxBad: conf.MaxBad}
	for _, name := range names {
		f := &file{name: name, in: in, copy: copies[name], reorder: in.reorder}
		if err = f.open(sizes); err == nil {
			in.files = append(in.files, f)
			err = f.recognize(conf)
		}
		if err != nil {
			in.close()
			return nil, err
		}
		in.total += sizes[name]
	}
	return in, nil
}

func (in *input) close() {
	for _, f := range in.files {
		if f.copy == nil {
			_ = f.from.Close()
		}
	}
}

// next returns the next request, nil at the end. It is good until the next call.
func (in *input) next() (*line, error) {
	var first *file
	for _, f := range in.files {
		if err := f.fill(); err != nil {
			return nil, err
		}
		if f.ready && (first == nil || f.head.at < first.head.at) {
			first = f
		}
	}
	if first == nil {
		return nil, nil
	}
	first.ready = false
	l := &first.head
	if l.at < in.last {
		in.back++
		if in.backAt == "" {
			in.backAt = fmt.Sprintf("%s:%d", first.name, first.number)
		}
	}
	l.at = max(in.last, l.at)
	in.last = l.at
	return l, nil
}

// isBad counts a line that could not be read. The error says that there are too many.
func (in *input) isBad(b BadLine) error {
	in.bad++
	if len(in.badSome) < shownBad {
		in.badSome = append(in.badSome, b)
	}
	if in.bad > in.maxBad {
		return fmt.Errorf("%v\n%d broken lines are more than --max-bad %d", b, in.bad, in.maxBad)
	}
	return nil
}

// A file is an input in the order of its times.
type file struct {
	name    string
	in      *input
	copy    *os.File // is read in its place; nil: there is none
	from    *os.File
	counted counter
	lines   *bufio.Reader
	parser  parser
	form    *form
	reorder limit.Instant // by how much its lines may be out of order
	number  int           // of the line
	ended   bool          // all lines are read

	head   line // the next one, if ready
	ready  bool
	wait   waiting // lines that others may precede
	newest limit.Instant
}

type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

var gzipMagic = []byte{0x1f, 0x8b}

// open opens a file, which is unpacked if it is gzip's.
func (f *file) open(sizes map[string]int64) (err error) {
	f.from = f.copy
	if f.copy == nil {
		if f.from, err = os.Open(f.name); err != nil {
			return err
		}
	}
	f.counted.Reader = f.from
	info, err := f.from.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		return fmt.Errorf("%s is a directory; name the files in it", f.name)
	case info.Mode().IsRegular():
		if _, again := sizes[f.name]; !again {
			sizes[f.name] = info.Size()
		}
		f.counted.Reader = io.LimitReader(f.from, sizes[f.name])
	}
	f.lines = bufio.NewReaderSize(&f.counted, 1<<18)
	if start, _ := f.lines.Peek(len(gzipMagic)); bytes.Equal(start, gzipMagic) {
		z, err := gzip.NewReader(f.lines)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		f.lines = bufio.NewReaderSize(z, 1<<18)
	}
	return nil
}

// recognize finds out what the lines of the file are.
func (f *file) recognize(conf *Options) (err error) {
	start, _ := f.lines.Peek(looksAt)
	if f.parser, f.form, err = conf.parser(start); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	if log, ok := f.parser.(*accessLog); ok && log.duration >= 0 && conf.Ended > 0 {
		f.reorder = limit.Instant(conf.Ended / time.Microsecond)
	}
	return nil
}

// fill makes head the next line, unless all have been read.
func (f *file) fill() error {
	for !f.ready {
		if n := len(f.wait); n > 0 && (f.ended || n >= maxWaiting || f.wait[0].at <= f.newest-f.reorder) {
			f.head, f.ready = heap.Pop(&f.wait).(line), true
			return nil
		}
		if f.ended {
			return nil
		}
		found, err := f.parse()
		switch {
		case err != nil:
			return err
		case !found:
		case f.reorder == 0:
			f.ready = true
		default:
			f.newest = max(f.newest, f.head.at, f.head.until)
			f.head.n = f.number
			heap.Push(&f.wait, f.head)
		}
	}
	return nil
}

// parse reads the next line into head; found: it is a request.
func (f *file) parse() (found bool, err error) {
	text, err := f.readLine()
	switch {
	case errors.Is(err, io.EOF):
		f.ended = true
		return false, nil
	case errors.Is(err, errLong):
	case err != nil: // a file of gzip that is cut off ends here
		f.ended = true
		return false, f.in.isBad(BadLine{f.name, f.number, err.Error()})
	default:
		err = f.parser.parse(text, &f.head)
	}
	if err != nil {
		if len(bytes.TrimSpace(text)) == 0 && !errors.Is(err, errLong) {
			return false, nil
		}
		return false, f.in.isBad(BadLine{f.name, f.number, err.Error()})
	}
	return true, nil
}

var errLong = fmt.Errorf("the line is longer than %d bytes", maxLine)

// readLine returns the next line, which is good until the next call.
func (f *file) readLine() ([]byte, error) {
	f.number++
	text, err := f.lines.ReadSlice('\n')
	if err == nil {
		return text, nil
	}
	var whole []byte
	long := false
	for errors.Is(err, bufio.ErrBufferFull) {
		if long = long || len(whole) > maxLine; !long {
			whole = append(whole, text...)
		}
		text, err = f.lines.ReadSlice('\n')
	}
	whole = append(whole, text...)
	switch {
	case long || len(whole) > maxLine:
		return nil, errLong
	case errors.Is(err, io.EOF) && len(whole) > 0:
		return whole, nil
	}
	return whole, err
}

// waiting is a heap of lines, the earliest first; those of one instant come as they were read.
type waiting []line

func (w waiting) Len() int           { return len(w) }
func (w waiting) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }
func (w waiting) Less(i, j int) bool { return cmp.Or(cmp.Compare(w[i].at, w[j].at), w[i].n-w[j].n) < 0 }
func (w *waiting) Push(x any)        { *w = append(*w, x.(line)) }
func (w *waiting) Pop() any {
	last := len(*w) - 1
	x := (*w)[last]
	(*w)[last] = line{}
	*w = (*w)[:last]
	return x
}
