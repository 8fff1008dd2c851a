package plan_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/sandbox/transcript"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestPlans reads testdata/*.txtar. Each file has two releases in the folders old and new, or
// the folder that contains both; an optional filter (payload.Filter in YAML); and the expected
// plan.
func TestPlans(t *testing.T) {
	transcript.Each(t, "testdata/*.txtar", func(t *testing.T, file *transcript.Transcript) {
		old, next := releases(t, file)
		file.Expect(t, "want", print(plan.Compare(old, next, nil)))
	})
}

// releases reads the two releases of an archive. An object may be there twice.
func releases(t *testing.T, archive *transcript.Transcript) (old, next *payload.Payload) {
	t.Helper()
	folders := map[string]fstest.MapFS{"old": {}, "new": {}}
	var options payload.Options
	elsewhere := ""
	for _, file := range archive.Files {
		folder, name, _ := strings.Cut(file.Name, "/")
		switch {
		case folders[folder] != nil:
			folders[folder][name] = &fstest.MapFile{Data: file.Data}
		case file.Name == "filter":
			if err := yaml.UnmarshalStrict(file.Data, &options.Filter); err != nil {
				t.Fatal(err)
			}
		case file.Name == "folder":
			elsewhere = strings.TrimSpace(string(file.Data))
		}
	}
	read := func(side string) *payload.Payload {
		var files fs.FS = folders[side]
		if elsewhere != "" {
			files = os.DirFS(filepath.Join(elsewhere, side))
		}
		release, problems, err := payload.Parse(t.Context(), files, options)
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range problems {
			if problem.Cause != payload.Duplicate && !problem.IsWarning() {
				t.Fatal(problem)
			}
		}
		return release
	}
	return read("old"), read("new")
}

// print is a plan as text, with all there is in it.
func print(p *plan.Plan) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s update from %s to %s\n", p.Update, version(p.From), version(p.To))
	for _, action := range plan.Actions() {
		if count := p.Counts[action]; count > 0 {
			fmt.Fprintf(&out, "  %d %s\n", count, action)
		}
	}
	for _, part := range []struct {
		what string
		ids  []kinds.ID
	}{{"restarts", p.Impact.Restarts}, {"loses", p.Impact.LosesData}, {"unreachable", p.Impact.Unreachable}} {
		if len(part.ids) > 0 {
			fmt.Fprintf(&out, "  %s %v\n", part.what, part.ids)
		}
	}
	for _, warning := range p.Warnings {
		fmt.Fprintf(&out, "%s: %s: %s\n", warning.Reason, warning.ID, warning.Message)
	}
	out.WriteString("steps\n")
	printEntries(&out, p.Steps)
	out.WriteString("absent\n")
	printEntries(&out, p.Absent)
	return out.String()
}

func version(r plan.ReleaseID) string {
	if r.Version == "" {
		return "?"
	}
	return r.Version
}

func printEntries(out *strings.Builder, entries []plan.ObjectPlan) {
	for _, e := range entries {
		place := e.Place()
		fmt.Fprintf(out, "  %s/%s %s %s", place.Level, place.Component, e.Action, e.ID)
		if e.Why != "" {
			fmt.Fprintf(out, ": %s", e.Why)
		}
		out.WriteString("\n")
		detail := func(format string, args ...any) { fmt.Fprintf(out, "      "+format+"\n", args...) }
		if e.IsMoved() {
			detail("moved from %s/%s", e.Old.Level, e.Old.Component)
		}
		for _, change := range e.Changes {
			mark := ""
			if change.Refused {
				mark = " REFUSED"
			}
			detail("%s: %v -> %v%s", change.Path, change.Old, change.New, mark)
		}
		if e.Recreated {
			detail("recreated")
		}
		for _, hook := range e.Hooks {
			detail("%s",
				strings.TrimSpace(fmt.Sprintf("hook %s (%s) runs: %t %s %s", hook.Stage, hook.FailurePolicy, hook.Runs,
					hook.Change, hook.Why)))
		}
		if d := e.Definition; d != nil {
			text, _ := yaml.Marshal(d)
			detail("%s", strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n      "))
		}
		if e.With != nil {
			detail("with %s", e.With)
		}
		if e.RenamedTo != nil {
			detail("renamed to %s", e.RenamedTo)
		}
		if e.CoveredBy != nil {
			detail("covered by %s", e.CoveredBy)
		} else if e.Tombstone != "" {
			detail("%s", strings.ReplaceAll(strings.TrimSpace(e.Tombstone), "\n", "\n      "))
		}
	}
}
