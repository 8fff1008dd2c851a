package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestTheReleaseIsReadOnce where it is the same as what is built of it without the
// component, and nowhere else.
func TestTheReleaseIsReadOnce(t *testing.T) {
	t.Chdir(t.TempDir())
	config := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: default}\n"
	for file, text := range map[string]string{"release/0000_50_web_01.yaml": config, "own/01.yaml": config} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		now, before releaseFlags
		isUpdate    bool
		want        bool
	}{
		"nothing is said":          {want: true},
		"a profile of both":        {now: releaseFlags{profile: "hypershift"}, before: releaseFlags{profile: "hypershift"}, want: true},
		"capabilities of both":     {now: releaseFlags{capabilities: "None"}, before: releaseFlags{capabilities: "None"}, want: true},
		"capabilities of a plan":   {now: releaseFlags{capabilities: "None"}, before: releaseFlags{capabilities: "None"}, isUpdate: true},
		"a version":                {now: releaseFlags{version: "1.2.3"}},
		"a version of both":        {now: releaseFlags{version: "1.2.3"}, before: releaseFlags{version: "1.2.3"}},
		"a version of the old one": {before: releaseFlags{version: "1.2.3"}},
		"an image of the old one":  {before: releaseFlags{image: "registry.example/shop:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := componentFlags{names: []string{"web"}, into: "release", isUpdate: test.isUpdate}
			p, err := f.place(t.Context(), "own", &test.now, &test.before, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.released == p.before; got != test.want || p.released == nil {
				t.Errorf("it is read once: %t, want %t", got, test.want)
			}
		})
	}
}
