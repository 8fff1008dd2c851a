package rehearse_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/rehearse"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/review/mistakes"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/payload"
)

// The bounds of the table, in percent.
const (
	minRefusals   = 98
	minOutages    = 80
	maxMisleading = 1
)

// outcomes is the file with the outcomes of a rehearsal of all mistakes.
const outcomes = "testdata/mistakes.txt"

// TestMistakes prints how many mistakes lint and a rehearsal find together, and those that neither does. It lints all,
// and rehearses those that an API server refuses and those that lint does not find, each in a branch of the shop: so no
// mistake may hide another one. It compares the outcomes of the rehearsal with testdata/mistakes.txt. Unless it is
// thorough, it rehearses one in four, and takes the outcomes of the others from there.
func TestMistakes(t *testing.T) {
	all := allMistakes(t)
	before, after := fstest.MapFS{}, fstest.MapFS{}
	linted := map[string]string{}
	isTried := func(i int) bool { return i%4 == 0 || *update || sandboxtest.IsThorough() }
	for i, m := range all {
		linted[m.Name] = m.Outcome(lintMistake(t, m))
		if isTried(i) && isRehearsed(m, linted[m.Name]) {
			addBranches(t, m, i, before, after)
		}
	}
	sandboxtest.NeedControlPlane(t)
	report, err := rehearse.Run(t.Context(), rehearse.Options{
		Old: parse(t, before, "1.0.0"), New: parse(t, after, "1.1.0"), Sandbox: sandbox.Options{Nodes: 6},
		Patience: 30 * time.Second, // the machine may be slow, and runs hundreds of pods
		Progress: func(line string) {
			t.Log(line)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want, recorded := readOutcomes(t)
	var rehearsed, together mistakes.Table
	for i, m := range all {
		outcome := linted[m.Name]
		var found []string
		if isRehearsed(m, outcome) {
			seen := recorded[m.Name]
			if isTried(i) {
				found = findingsOf(report, i)
				seen = m.Outcome(found)
			}
			rehearsed.Add(m, seen)
			outcome = better(outcome, seen)
		}
		together.Add(m, outcome)
		if outcome != "found" && outcome != "quiet" {
			t.Logf("%s %s (%s): %s %s", outcome, m.Name, m.Because, m.Missed, found)
		}
	}
	checkBounds(t, &together)
	if *update {
		want = rehearsed.String()
		if err := os.WriteFile(outcomes, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, rehearsed.String()); diff != "" {
		t.Errorf("other mistakes are found (-want +got):\n%s", diff)
	}
}

// readOutcomes returns the outcomes of the last whole rehearsal, as text and by the names of mistakes.
func readOutcomes(t *testing.T) (text string, byName map[string]string) {
	t.Helper()
	read, err := os.ReadFile(outcomes)
	if err != nil {
		t.Fatal(err)
	}
	byName = map[string]string{}
	for line := range strings.Lines(string(read)) {
		if fields := strings.Fields(line); len(fields) == 3 {
			byName[fields[2]] = fields[1]
		}
	}
	return string(read), byName
}

// checkBounds compares the shares of the outcomes with the bounds.
func checkBounds(t *testing.T, together *mistakes.Table) {
	t.Helper()
	for _, group := range []mistakes.Group{mistakes.Create, mistakes.Within, mistakes.Update, mistakes.Outage} {
		bound := minRefusals
		if group == mistakes.Outage {
			bound = minOutages
		}
		t.Logf("%s: %d %% found, %d %% misleading", group, together.Percent("found", group),
			together.Percent("misleading", group))
		if together.Percent("found", group) < bound || together.Percent("misleading", group) > maxMisleading {
			t.Errorf("%s: fewer than %d %% are found, or more than %d %% are misleading", group, bound, maxMisleading)
		}
	}
	if together.Percent("quiet", mistakes.Fine) < 100 {
		t.Error("lint or a rehearsal finds something in a change without a mistake")
	}
}

// allMistakes returns the mistakes that an API server refuses, and those that it accepts.
func allMistakes(t *testing.T) []mistakes.Mistake {
	t.Helper()
	all, err := mistakes.All()
	if err != nil {
		t.Fatal(err)
	}
	outages, err := mistakes.Outages()
	if err != nil {
		t.Fatal(err)
	}
	return append(all, outages...)
}

// isRehearsed reports whether a mistake is rehearsed. No container runs, so there is little to see of most outages, and
// the near misses among them are left to lint: hundreds of shops would need a larger machine.
func isRehearsed(m mistakes.Mistake, linted string) bool {
	isNearMiss := m.Group == mistakes.Fine && m.Family != ""
	return !m.Alone && !isNearMiss && (m.Group != mistakes.Outage || linted != "found")
}

// better returns the better of two outcomes: what one check finds, the other need not.
func better(a, b string) string {
	for _, outcome := range []string{"false", "found", "misleading", "missed"} {
		if a == outcome || b == outcome {
			return outcome
		}
	}
	return a
}

// addBranches adds the branches of a mistake to the releases before and after.
func addBranches(t *testing.T, m mistakes.Mistake, i int, before, after fstest.MapFS) {
	t.Helper()
	previous, err := m.Previous()
	if err != nil {
		t.Fatal(err)
	}
	release, changed, err := m.Release()
	if err != nil {
		t.Fatal(err)
	}
	if m.Group == mistakes.Fine || m.Group == mistakes.Outage {
		changed = slices.Collect(maps.Keys(release))
	}
	maps.Copy(after, branch(release, changed, i))
	if m.Group != mistakes.Create && m.Group != mistakes.Within {
		maps.Copy(before, branch(previous, changed, i))
	}
}

// lintMistake returns the errors and warnings of lint about a mistake: as an update of the release before, unless it is
// one of a first creation.
func lintMistake(t *testing.T, m mistakes.Mistake) (found []string) {
	t.Helper()
	release, _, err := m.Release()
	if err != nil {
		t.Fatal(err)
	}
	input := lint.Input{}
	if input.Payload, input.Problems, err = payload.Load(t.Context(), release,
		payload.Options{KeepText: true}); input.Payload == nil {
		return []string{err.Error()}
	}
	if m.Group != mistakes.Create && m.Group != mistakes.Within {
		previous, err := m.Previous()
		if err != nil {
			t.Fatal(err)
		}
		input.Previous = parse(t, previous, "")
	}
	result, err := lint.Run(t.Context(), input)
	if err != nil {
		t.Fatal(err)
	}
	for _, finding := range result.Findings {
		if finding.Severity.AtLeast(lint.Warning) {
			found = append(found, finding.String())
		}
	}
	return found
}

// nameOf returns the name of a branch of the shop.
func nameOf(i int) string { return fmt.Sprintf("shop%03d", i) }

// branch returns some files of a release, and those that all need. Its objects have other names, so that it does not
// meet other branches.
func branch(release fstest.MapFS, files []string, i int) fstest.MapFS {
	named := fstest.MapFS{}
	for name, file := range release {
		if !strings.HasPrefix(name, "0000_10") && !strings.HasPrefix(name, "0000_20_shop_00") &&
			!slices.Contains(files, name) {
			continue
		}
		named[strings.ReplaceAll(name, "shop", nameOf(i))] = &fstest.MapFile{
			Data: []byte(strings.ReplaceAll(string(file.Data), "shop", nameOf(i))),
		}
	}
	return named
}

// findingsOf returns the errors and warnings about a branch, with the names of the shop.
func findingsOf(report *rehearse.Report, i int) (found []string) {
	severities := map[string]lint.Severity{}
	for _, rule := range lint.RehearsalRules() {
		severities[rule.ID] = rule.Severity
	}
	for _, seen := range report.Observations {
		if strings.Contains(seen.Path, nameOf(i)) && severities[seen.Rule].AtLeast(lint.Warning) {
			line := fmt.Sprintf("%s: %s: %s: %s", seen.Path, seen.Rule, seen.Object, seen.Message)
			found = append(found, strings.ReplaceAll(line, nameOf(i), "shop"))
		}
	}
	return found
}

// parse reads a release, of which some files may be wrong.
func parse(t testing.TB, files fstest.MapFS, version string) *payload.Payload {
	t.Helper()
	read, _, err := payload.Parse(t.Context(), files, payload.Options{Name: "shop", Version: version, KeepText: true})
	if err != nil {
		t.Fatal(err)
	}
	return read
}
