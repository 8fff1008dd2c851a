package machinetemplate

import (
	"strings"
	"testing"
)

func TestLabelValue(t *testing.T) {
	t.Parallel()
	if got := LabelValue("web"); got != "web" {
		t.Errorf("got %q, want web", got)
	}
	if got := LabelValue(strings.Repeat("web-", 30) + "a"); !strings.HasPrefix(got, "hash_") ||
		!strings.HasSuffix(got, "_z") || len(got) > 63 {
		t.Errorf("got %q, want a hash", got)
	}
}
