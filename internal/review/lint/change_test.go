package lint_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/pkg/payload"
)

// eachExample calls a function with the examples of all rules.
func eachExample(t *testing.T, call func(name string, e *example)) {
	for _, rule := range lint.Rules() {
		for _, e := range pageExamples(t, rule) {
			call(rule.ID+" "+e.name, e)
		}
	}
}

func inPayload(findings []lint.Finding) string {
	var lines strings.Builder
	for _, f := range findings {
		if f.In != lint.InConfig && f.In != lint.InBaseline {
			f.In = lint.InPayload
			fmt.Fprintln(&lines, f)
		}
	}
	return lines.String()
}

// An owner of all files gets all findings. A user who owns no files and changes none gets none.
func TestAChangeOfAllAndOfNothing(t *testing.T) {
	eachExample(t, func(name string, e *example) {
		input := e.input(t)
		want := inPayload(run(t, input).Findings)
		isMine := true
		input.Change = &lint.ComponentChange{
			Before:   input.Payload,
			Problems: input.Problems,
			Own:      func(file string, _ lint.Origin) (string, bool) { return file, isMine },
		}
		if diff := cmp.Diff(want, inPayload(run(t, input).Findings)); diff != "" {
			t.Errorf("%s: who owns everything sees something else: %s", name, diff)
		}
		isMine = false
		if got := inPayload(run(t, input).Findings); got != "" {
			t.Errorf("%s: who changes nothing sees %s", name, got)
		}
	})
}

func read(t *testing.T, files fstest.MapFS) (*payload.Payload, []payload.Problem) {
	t.Helper()
	p, problems, err := payload.Parse(t.Context(), files, payload.Options{KeepText: true})
	if err != nil {
		t.Fatal(err)
	}
	return p, problems
}

func text(lines ...string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(strings.Join(lines, "\n") + "\n")}
}

func configMap(name, more string) *fstest.MapFile {
	return text("apiVersion: v1", "kind: ConfigMap", "metadata:", "  name: "+name, "  namespace: default", more)
}

// Findings that a change causes in files of other components are reported. Older findings are not reported,
// regardless of their position in the file and their number.
func TestFindingsCausedByAChange(t *testing.T) {
	misspelt := `  annotations: {release.openshift.io/deleted: "true"}`
	inNowhere := text("apiVersion: v1", "kind: ConfigMap", "metadata: {name: web, namespace: nowhere}")
	ofForeignKind := text("apiVersion: shop.example/v1", "kind: Shop", "metadata: {name: web, namespace: default}")
	others := fstest.MapFS{
		"0000_40_api_04.yaml": text("apiVersion: v1", "kind: ConfigMap", "metadata: {name: api, namespace: nowhere}"),
		"0000_40_api_05.yaml": text("apiVersion: shop.example/v1", "kind: Shop",
			"metadata: {name: api, namespace: default}"),
		"0000_50_api_01.yaml": configMap("api", misspelt),
		"0000_50_api_02.yaml": configMap("both", ""),
		"0000_60_api_03.yaml": text("apiVersion: v1", "kind: ConfigMap", "metadata: {name: broken"),
	}
	with := func(files fstest.MapFS) fstest.MapFS {
		all := fstest.MapFS{}
		for _, more := range []fstest.MapFS{others, files} {
			for name, file := range more {
				all[name] = file
			}
		}
		return all
	}
	for name, test := range map[string]struct {
		before, after fstest.MapFS
		want          []string
	}{
		"nothing": {fstest.MapFS{}, fstest.MapFS{"0000_50_web_01.yaml": configMap("web", "")}, nil},
		"its own mistake": {
			fstest.MapFS{"0000_50_web_01.yaml": configMap("web", misspelt)},
			fstest.MapFS{"0000_50_web_01.yaml": configMap("web", misspelt)},
			[]string{"01.yaml delete-misspelt"},
		},
		"an object that others have, behind theirs": {
			fstest.MapFS{}, fstest.MapFS{"0000_50_web_01.yaml": configMap("both", "")}, []string{"01.yaml duplicate"},
		},
		"an object that others have, in front of theirs": {
			fstest.MapFS{}, fstest.MapFS{"0000_40_web_01.yaml": configMap("both", "")},
			[]string{"0000_50_api_02.yaml duplicate release"},
		},
		"one more object in a missing Namespace": {fstest.MapFS{},
			fstest.MapFS{"0000_50_web_01.yaml": inNowhere}, nil},
		"one more object of a kind that others have, too": {fstest.MapFS{},
			fstest.MapFS{"0000_50_web_01.yaml": ofForeignKind}, nil},
		"the same, that was there in another line": {
			fstest.MapFS{"0000_40_web_01.yaml": configMap("both", "")},
			fstest.MapFS{"0000_40_web_01.yaml": text("# one more line", string(configMap("both", "").Data))}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			change := &lint.ComponentChange{Own: func(file string, _ lint.Origin) (string, bool) {
				return strings.TrimPrefix(file, "0000_50_web_"), strings.Contains(file, "_web_")
			}}
			input := lint.Input{Change: change}
			change.Before, change.Problems = read(t, with(test.before))
			input.Payload, input.Problems = read(t, with(test.after))
			var got []string
			for _, f := range run(t, input).Findings {
				got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s", f.File, f.Rule, f.In)))
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// If a definition moves to another file, mistakes of others still belong to the others.
func TestADefinitionInAnotherFile(t *testing.T) {
	definition := text("apiVersion: apiextensions.k8s.io/v1", "kind: CustomResourceDefinition",
		"metadata: {name: shops.example.com}",
		"spec:", "  group: example.com", "  scope: Namespaced", "  names: {kind: Shop, plural: shops}", "  versions:",
		"  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, required: [spec]}}}")
	shop := text("apiVersion: example.com/v1", "kind: Shop", "metadata: {name: api, namespace: default}")
	own := func(now string) *lint.ComponentChange {
		return &lint.ComponentChange{Own: func(file string, origin lint.Origin) (string, bool) {
			return file, file == now || origin == lint.InPrevious && strings.Contains(file, "_web_")
		}}
	}
	change := own("0000_10_web_02.yaml")
	change.Before, change.Problems = read(t,
		fstest.MapFS{"0000_10_web_01.yaml": definition, "0000_50_api_01.yaml": shop})
	input := lint.Input{Change: change}
	input.Payload, input.Problems = read(t,
		fstest.MapFS{"0000_10_web_02.yaml": definition, "0000_50_api_01.yaml": shop})
	if got := inPayload(run(t, input).Findings); got != "" {
		t.Errorf("found %s", got)
	}
}
