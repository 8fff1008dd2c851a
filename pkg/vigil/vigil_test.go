package vigil_test

import (
	"testing"

	"github.com/runlevel/runlevel/pkg/vigil"
)

func TestWhatIsOlder(t *testing.T) {
	for _, c := range []struct {
		version, than string
		want          bool
	}{
		{"9", "10", true}, // they are numbers, not texts
		{"10", "9", false},
		{"10", "10", false},
		{"10", "", false}, // nothing is known yet
		{"a", "b", false}, // of a server that does not count
	} {
		if got := vigil.IsOlder(c.version, c.than); got != c.want {
			t.Errorf("%q is older than %q: %v", c.version, c.than, got)
		}
	}
}
