package rehearse_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/runlevel/runlevel/internal/rehearse"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// A page is that of a rule, with its examples as branches of the shop.
type page struct {
	lint.Rule
	file     string
	archive  *txtar.Archive
	branches map[string]int // branches by the name of the example
}

// TestPages rehearses the examples on the pages of the rules at once, each in a branch of its own, and compares what
// each rule finds with its page.
func TestPages(t *testing.T) {
	before, after := fstest.MapFS{}, fstest.MapFS{}
	var pages []*page
	for i, rule := range lint.RehearsalRules() {
		p := readPage(t, rule, 2*i)
		pages = append(pages, p)
		for _, file := range p.archive.Files {
			folder, name, isManifest := strings.Cut(file.Name, "/")
			example, isPrevious := strings.CutSuffix(folder, ".previous")
			release := fstest.MapFS{name: {Data: file.Data}}
			switch {
			case !isManifest:
			case isPrevious:
				maps.Copy(before, branch(release, []string{name}, p.branches[example]))
			default:
				maps.Copy(after, branch(release, []string{name}, p.branches[example]))
			}
		}
	}
	input := lint.Input{Previous: parse(t, before, "1.0.0"), Payload: parse(t, after, "1.1.0")}
	sandboxtest.NeedControlPlane(t)
	report, err := rehearse.Run(t.Context(), rehearse.Options{
		Old: input.Previous, New: input.Payload, Sandbox: sandbox.Options{Nodes: 3}, Progress: func(line string) {
			t.Log(line)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	input.Rehearsal, input.Config.Severities = &report.Rehearsal, map[string]lint.Severity{}
	for _, rule := range lint.Rules() {
		if !rule.NeedsRehearsal() {
			input.Config.Severities[rule.ID] = lint.Off
		}
	}
	result, err := lint.Run(t.Context(), input)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		p.compare(t, result.Findings)
	}
}

// readPage reads the page of a rule. Its examples are the branches from a number on.
func readPage(t *testing.T, rule lint.Rule, first int) *page {
	t.Helper()
	file := filepath.Join("..", "review", "lint", "rules", rule.ID+".txtar")
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return &page{rule, file, archive, map[string]int{"bad": first, "good": first + 1}}
}

// chance matches what differs from one rehearsal, or one version of Kubernetes, to the next: ages, and the ends of the
// names of ReplicaSets and pods.
var chance = regexp.MustCompile(`(terminating for )\d+s|(\bweb-)[0-9a-z]{6,}(?:-[0-9a-z]{5})?`)

// compare compares the findings in the examples with the page.
func (p *page) compare(t *testing.T, findings []lint.Finding) {
	t.Helper()
	var got strings.Builder
	for _, finding := range findings {
		switch {
		case finding.Rule != p.ID:
		case strings.Contains(finding.File, nameOf(p.branches["good"])):
			t.Errorf("the good example of %s: %s", p.ID, finding)
		case strings.Contains(finding.File, nameOf(p.branches["bad"])):
			line := strings.ReplaceAll(finding.String(), nameOf(p.branches["bad"]), "shop")
			got.WriteString(chance.ReplaceAllString(line, "$1$2…") + "\n")
		}
	}
	for i, file := range p.archive.Files {
		if file.Name != "want" {
			continue
		}
		if *update {
			p.archive.Files[i].Data = []byte(got.String())
			if err := os.WriteFile(p.file, txtar.Format(p.archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(string(p.archive.Files[i].Data), got.String()); diff != "" || got.String() == "" {
			t.Errorf("%s finds something else (-want +got):\n%s", p.ID, diff)
		}
	}
}
