package crd_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/crd"
)

var update = flag.Bool("update", false, "write again which problems the transcripts want")

// A transcript is a file of testdata: definitions, of which crd.yaml is that of the
// objects beside it, and in "want" what is wrong with each. An object may have been
// another before: NAME.before.yaml.
type transcript struct {
	name        string
	archive     *txtar.Archive
	definitions []entry
	objects     []entry
}

type entry struct {
	name           string
	object, before map[string]any
}

func transcripts(t testing.TB) []*transcript {
	t.Helper()
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatal("no transcripts", err)
	}
	var all []*transcript
	for _, name := range names {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, read(t, name, archive))
	}
	return all
}

func read(t testing.TB, name string, archive *txtar.Archive) *transcript {
	t.Helper()
	result := &transcript{name: strings.TrimSuffix(filepath.Base(name), ".txtar"), archive: archive}
	before := map[string]map[string]any{}
	for _, file := range archive.Files {
		if file.Name == "want" {
			continue
		}
		var object map[string]any
		if err := yaml.Unmarshal(file.Data, &object); err != nil {
			t.Fatalf("%s: %s: %v", name, file.Name, err)
		}
		base := strings.TrimSuffix(file.Name, ".yaml")
		switch previous, isBefore := strings.CutSuffix(base, ".before"); {
		case isBefore:
			before[previous] = object
		case strings.HasSuffix(base, "crd"):
			result.definitions = append(result.definitions, entry{name: base, object: object})
		default:
			result.objects = append(result.objects, entry{name: base, object: object, before: before[base]})
		}
	}
	return result
}

// definition is that of the objects.
func (tr *transcript) definition(t testing.TB) *crd.Definition {
	t.Helper()
	d, err := crd.NewDefinition(tr.definitions[0].object)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func check(t testing.TB, d *crd.Definition, e entry) []crd.SchemaProblem {
	t.Helper()
	if e.before != nil {
		return d.CheckUpdate(t.Context(), e.before, e.object)
	}
	return d.Check(t.Context(), e.object)
}

// write shows problems the way that transcripts have them.
func write(out *strings.Builder, name string, problems []crd.SchemaProblem) {
	if len(problems) == 0 {
		fmt.Fprintf(out, "%s: ok\n", name)
	}
	for _, p := range problems {
		what := "wrong"
		if p.Unknown {
			what = "unknown"
		}
		fmt.Fprintf(out, "%s: %s at %s\n\t%s\n", name, what, strings.Join(p.Path, "/"), p.Message)
	}
}

func TestTranscripts(t *testing.T) {
	for _, tr := range transcripts(t) {
		t.Run(tr.name, func(t *testing.T) {
			var got strings.Builder
			for _, e := range tr.definitions {
				write(&got, e.name, crd.CheckDefinition(t.Context(), e.object))
			}
			for _, e := range tr.objects {
				write(&got, e.name, check(t, tr.definition(t), e))
			}
			compare(t, tr, got.String())
		})
	}
}

// TestTheVerdictIsTheSameEachTime: the first objects of a definition have only those
// rules compiled that they may break, later ones all of them.
func TestTheVerdictIsTheSameEachTime(t *testing.T) {
	for _, tr := range transcripts(t) {
		for _, e := range tr.objects {
			d := tr.definition(t)
			first := check(t, d, e)
			for range 4 {
				if diff := cmp.Diff(first, check(t, d, e)); diff != "" {
					t.Errorf("%s: %s is judged otherwise the next time:\n%s", tr.name, e.name, diff)
				}
			}
		}
	}
}

func compare(t *testing.T, tr *transcript, got string) {
	t.Helper()
	for i, file := range tr.archive.Files {
		if file.Name != "want" {
			continue
		}
		if *update {
			tr.archive.Files[i].Data = []byte(got)
			break
		}
		if diff := cmp.Diff(string(file.Data), got); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
		return
	}
	if !*update {
		t.Fatal("the transcript wants nothing: run with -update, and read what it says")
	}
	if i := len(tr.archive.Files) - 1; tr.archive.Files[i].Name != "want" {
		tr.archive.Files = append(tr.archive.Files, txtar.File{Name: "want", Data: []byte(got)})
	}
	if err := os.WriteFile("testdata/"+tr.name+".txtar", txtar.Format(tr.archive), 0o644); err != nil {
		t.Fatal(err)
	}
}
