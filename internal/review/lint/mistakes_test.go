package lint_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/review/mistakes"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestMistakes lints each mistake, and prints which it finds. A finding is useful if it mentions what is wrong.
func TestMistakes(t *testing.T) {
	all, err := mistakes.All()
	if err != nil {
		t.Fatal(err)
	}
	shop, err := mistakes.Shop()
	if err != nil {
		t.Fatal(err)
	}
	if found := lintFiles(t, shop, nil); len(found) > 0 {
		t.Fatalf("the release has mistakes of its own: %q", found)
	}
	counts := map[mistakes.Group]map[string]int{}
	for _, m := range all {
		release, _, err := m.Release()
		if err != nil {
			t.Fatal(err)
		}
		previous := shop
		if m.Group == mistakes.Create {
			previous = nil
		}
		found := lintFiles(t, release, previous)
		outcome := "missed"
		switch isUseful := slices.ContainsFunc(found, func(text string) bool { return strings.Contains(text, m.Says) }); {
		case len(found) > 0 && m.Group == mistakes.Fine:
			outcome = "false"
		case len(found) > 0 && isUseful:
			outcome = "found"
		case len(found) > 0:
			outcome = "misleading"
		}
		if counts[m.Group] == nil {
			counts[m.Group] = map[string]int{}
		}
		counts[m.Group][outcome]++
		t.Logf("%-7s %-10s %s %s", m.Group, outcome, m.Name, strings.Join(found, "\n\t\t"))
	}
	for _, group := range []mistakes.Group{mistakes.Create, mistakes.Update, mistakes.Outage, mistakes.Fine} {
		t.Logf("%-7s found %d, misleading %d, missed %d, false %d", group, counts[group]["found"], counts[group]["misleading"], counts[group]["missed"], counts[group]["false"])
	}
}

// lintFiles returns the errors and warnings of a release, compared with the one before if there is one.
func lintFiles(t *testing.T, release, previous fstest.MapFS) (found []string) {
	t.Helper()
	o := payload.Options{KeepText: true}
	input := lint.Input{}
	var err error
	if input.Payload, input.Problems, err = payload.Load(t.Context(), release, o); input.Payload == nil {
		return []string{err.Error()}
	}
	if previous != nil {
		if input.Previous, _, err = payload.Load(t.Context(), previous, o); err != nil {
			t.Fatal(err)
		}
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
