package bounded

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is longer than the bound is an error, as is what has no end, and nothing is cut short in silence.
func TestWhatIsTooLongIsAnError(t *testing.T) {
	const most = 1 << 20
	dir := t.TempDir()
	for size, ok := range map[int]bool{0: true, 1000: true, most: true, most + 1: false, 3 * most: false} {
		text := strings.Repeat("x", size)
		name := filepath.Join(dir, "f")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		data, err := File(name, most)
		if ok && (err != nil || string(data) != text) {
			t.Errorf("%d bytes: %d bytes, %v", size, len(data), err)
		}
		if !ok && (err == nil || !strings.Contains(err.Error(), name+": larger than 1 MiB")) {
			t.Errorf("%d bytes: %d bytes, %v", size, len(data), err)
		}
		if data, err := io.ReadAll(Reader(strings.NewReader(text), most)); (err == nil) != ok {
			t.Errorf("%d bytes from a reader: %d bytes, %v", size, len(data), err)
		}
	}
	if _, err := File("/dev/zero", most); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a device: %v", err)
	}
	if _, err := File(filepath.Join(dir, "none"), most); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
