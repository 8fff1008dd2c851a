package hostpods

import (
	"bytes"
	"io"
	"sync"

	"github.com/runlevel/runlevel/pkg/printable"
)

// A lineWriter takes whole lines from several processes.
type lineWriter struct {
	mu sync.Mutex
	to io.Writer
}

// print writes a line. Errors are dropped: what is lost is in the log.
func (w *lineWriter) print(prefix string, line []byte) {
	if w.to == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = io.WriteString(w.to, prefix+printable.Line(string(line))+"\n")
}

// maxLine bounds what is held of a line that does not end.
const maxLine = 64 << 10

// A prefixWriter cuts what one process prints into lines.
type prefixWriter struct {
	lines  *lineWriter
	prefix string
	rest   []byte
}

func (w *prefixWriter) Write(text []byte) (int, error) {
	w.rest = append(w.rest, text...)
	for {
		line, rest, isWhole := bytes.Cut(w.rest, []byte("\n"))
		if !isWhole {
			break
		}
		w.lines.print(w.prefix, line)
		w.rest = rest
	}
	if len(w.rest) > maxLine {
		w.flush()
	}
	return len(text), nil
}

// flush prints a line that has no end.
func (w *prefixWriter) flush() {
	if len(w.rest) > 0 {
		w.lines.print(w.prefix, w.rest)
	}
	w.rest = nil
}
