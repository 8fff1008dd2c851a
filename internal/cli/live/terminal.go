package live

import (
	"io"
	"os"

	"golang.org/x/term"
	"k8s.io/klog/v2"
)

// TerminalOf returns the terminal for a live view. It returns nil if out is not a terminal, if the terminal can only
// print lines or has no size, or if logs are printed.
func TerminalOf(out io.Writer) *os.File {
	file, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) || klog.V(1).Enabled() {
		return nil
	}
	if kind := os.Getenv("TERM"); kind == "dumb" || kind == "" && os.PathSeparator == '/' {
		return nil
	}
	if width, height, err := term.GetSize(int(file.Fd())); err != nil || width == 0 || height == 0 {
		return nil
	}
	return file
}
