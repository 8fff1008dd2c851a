package state

import (
	"slices"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
)

func TestMessageOfACondition(t *testing.T) {
	for message, want := range map[string][]string{
		"":                       {"PreflightPassed=False: "},
		"Preflight:\n* a\n* b\n": {"PreflightPassed=False: Preflight:", "* a", "* b"},
	} {
		got := messageOf(configv1.ClusterOperatorStatusCondition{
			Type:    preflightPassed,
			Status:  "False",
			Message: message,
		})
		if lines := append([]string{got.Text}, got.Details...); !slices.Equal(lines, want) {
			t.Errorf("%q: %q, want %q", message, lines, want)
		}
	}
}
