package bounded

import (
	"fmt"
	"io"
	"os"
)

// File reads a file. One of more than most bytes is an error.
func File(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%s: %w", path, tooLong(most))
	}
	return data, err
}

// Reader reads from in, and returns an error in place of what is beyond most bytes.
func Reader(in io.Reader, most int64) io.Reader { return &reader{in, most, most} }

type reader struct {
	in         io.Reader
	most, left int64
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	if r.left -= int64(n); r.left < 0 {
		return 0, tooLong(r.most)
	}
	return n, err
}

func tooLong(most int64) error {
	return fmt.Errorf("larger than %d MiB, which is the most that is read", most>>20)
}
