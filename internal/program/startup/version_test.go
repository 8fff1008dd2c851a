package startup

import (
	"testing"

	"github.com/runlevel/runlevel/internal/text/buildinfo"
)

// TestVersion: the version of the release counts, and without a release the program's own.
func TestVersion(t *testing.T) {
	defer func(before string) { buildinfo.Version = before }(buildinfo.Version)
	for _, test := range []struct{ release, linked, want string }{
		{"4.22.0", "v0.1.0", "4.22.0"},
		{"0.0.1-snapshot", "v0.1.0", "0.1.0"},
		{"", "v0.1.0", "0.1.0"},
		{"", "", "0.0.1-snapshot"},
	} {
		t.Setenv("RELEASE_VERSION", test.release)
		if buildinfo.Version = test.linked; Version() != test.want {
			t.Errorf("of release %q and program %q, the version is %s, want %s", test.release, test.linked, Version(),
				test.want)
		}
	}
}
