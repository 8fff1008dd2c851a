package crd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/crd"
	"github.com/runlevel/runlevel/internal/sandbox/transcript"
)

// A validation is a file of testdata. It has definitions (crd.yaml defines the kind of the
// objects), objects, and in "want" the problems of each object. NAME.before.yaml is the
// previous state of an object.
type validation struct {
	*transcript.Transcript
	definitions []entry
	objects     []entry
}

type entry struct {
	name           string
	object, before map[string]any
}

func validations(t testing.TB) []*validation {
	t.Helper()
	var all []*validation
	for _, file := range transcript.ReadAll(t, "testdata/*.txtar") {
		all = append(all, read(t, file))
	}
	return all
}

func read(t testing.TB, archive *transcript.Transcript) *validation {
	t.Helper()
	result := &validation{Transcript: archive}
	before := map[string]map[string]any{}
	for _, file := range archive.Files {
		if file.Name == "want" {
			continue
		}
		var object map[string]any
		if err := yaml.Unmarshal(file.Data, &object); err != nil {
			t.Fatalf("%s: %s: %v", archive.Name, file.Name, err)
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
func (v *validation) definition(t testing.TB) *crd.Definition {
	t.Helper()
	d, err := crd.NewDefinition(v.definitions[0].object)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func check(t testing.TB, d *crd.Definition, e entry) []crd.Problem {
	t.Helper()
	if e.before != nil {
		return d.CheckUpdate(t.Context(), e.before, e.object)
	}
	return d.Check(t.Context(), e.object)
}

// write shows problems the way that transcripts have them.
func write(out *strings.Builder, name string, problems []crd.Problem) {
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
	for _, v := range validations(t) {
		t.Run(v.Name, func(t *testing.T) {
			var got strings.Builder
			for _, e := range v.definitions {
				write(&got, e.name, crd.CheckDefinition(t.Context(), e.object))
			}
			for _, e := range v.objects {
				write(&got, e.name, check(t, v.definition(t), e))
			}
			v.Expect(t, "want", got.String())
		})
	}
}

// TestTheVerdictIsTheSameEachTime: for the first objects of a definition, only the rules
// that they may break are compiled; for later objects, all rules.
func TestTheVerdictIsTheSameEachTime(t *testing.T) {
	for _, v := range validations(t) {
		for _, e := range v.objects {
			d := v.definition(t)
			first := check(t, d, e)
			for range 4 {
				if diff := cmp.Diff(first, check(t, d, e)); diff != "" {
					t.Errorf("%s: %s is judged otherwise the next time:\n%s", v.Name, e.name, diff)
				}
			}
		}
	}
}
