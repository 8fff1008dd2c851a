package loader_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestSettingsCountWhereOptionsSetNothing checks a release, a copy without values, where the settings also count, and a
// copy with values, where they do not.
func TestSettingsCountWhereOptionsSetNothing(t *testing.T) {
	folder := write(t, variants)
	settle := func(text string) {
		t.Helper()
		if err := os.WriteFile(folder+"/runlevel.yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(values []byte, options payload.Options) *payload.Payload {
		t.Helper()
		read, _, err := loader.ParseOpened(t.Context(), &source.Release{
			FS:     os.DirFS(folder),
			Kind:   source.Applied,
			Values: values,
		}, loader.Options{Payload: options})
		if err != nil {
			t.Fatal(err)
		}
		return read
	}
	names := func(p *payload.Payload) (all []string) {
		for _, m := range p.Manifests {
			all = append(all, m.ID().Name)
		}
		return all
	}
	settle("name: shop\nversion: 1.2.3\nprofile: edge\ncapabilities: [None]\nfeatureGates: [Fast]\nunmanaged: " +
		"[ConfigMap/shop/edge]\n")
	before := read(nil, payload.Options{})
	if got := names(before); !slices.Equal(got, []string{"edge-gate"}) || before.Name != "shop" ||
		before.Version != "1.2.3" {
		t.Errorf("%s %s has %v", before.Name, before.Version, got)
	}
	if !slices.Contains(before.FileNames(), "runlevel.yaml") {
		t.Errorf("the files to keep are %v", before.FileNames())
	}
	set := read(nil, payload.Options{Name: "web", Filter: payload.Filter{Profile: "core"}})
	if got := names(set); !slices.Equal(got, []string{"core"}) || set.Name != "web" || set.Version != "1.2.3" {
		t.Errorf("with options, %s %s has %v", set.Name, set.Version, got)
	}
	values, err := loader.Values(before)
	if err != nil {
		t.Fatal(err)
	}
	settle("name: other\nprofile: core\nfield: of a later program\n")
	if again := read(values, payload.Options{}); again.Hash != before.Hash || again.Name != "shop" ||
		again.Version != "1.2.3" {
		t.Errorf("the copy is %s %s with %v", again.Name, again.Version, names(again))
	}
	_, _, err = loader.Parse(t.Context(), folder, loader.Options{})
	if want := folder + ": runlevel.yaml:3: unknown field field: it can have "; err == nil ||
		!strings.HasPrefix(err.Error(), want) {
		t.Errorf("the error is %v, want %s", err, want)
	}
	tolerant := payload.Options{LeaveOutNewer: true}
	got, problems, err := loader.Parse(t.Context(), folder, loader.Options{Payload: tolerant})
	if err != nil || len(problems) != 1 || !problems[0].IsNewer || problems[0].Line != 3 || got.Name != "other" {
		t.Errorf("an operator gets %+v (%v) of %v", problems, err, got)
	}
	settle("profile: [core]\nfield: of a later program\n")
	if _, _, err := loader.Parse(t.Context(), folder, loader.Options{Payload: tolerant}); err == nil {
		t.Error("an operator accepts a value of the wrong type")
	}
}
