package startup

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

func TestMemoryLimitOfTheContainer(t *testing.T) {
	const show, unlimited = -1, 1 << 62
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(show))
	for _, test := range []struct {
		text, variable string
		want           int64
	}{
		{"536870912\n", "", 536870912 / 10 * 9}, {"max\n", "", unlimited}, {"", "", unlimited},
		{"536870912\n", "1GiB", unlimited},
	} {
		debug.SetMemoryLimit(unlimited)
		t.Setenv("GOMEMLIMIT", test.variable)
		file := filepath.Join(t.TempDir(), "memory.max")
		if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		limitMemory(file)
		if got := debug.SetMemoryLimit(show); got != test.want {
			t.Errorf("with %q and GOMEMLIMIT=%q: got %d, want %d", test.text, test.variable, got, test.want)
		}
	}
}
