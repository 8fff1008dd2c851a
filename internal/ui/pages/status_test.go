package pages

import (
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/session/state"
)

// TestStatusOfAnUnknownRelease makes a page without a record: nothing was read that it could deny.
func TestStatusOfAnUnknownRelease(t *testing.T) {
	var out strings.Builder
	if err := Status("shop", &state.Status{Release: "nosuch"}).WriteFile(&out); err != nil {
		t.Fatal(err)
	}
	for _, unwanted := range []string{"No known problem", "No delete", "No version"} {
		if strings.Contains(out.String(), unwanted) {
			t.Errorf("the page has %q", unwanted)
		}
	}
	if !strings.Contains(out.String(), "not applied") {
		t.Error("the page lacks the state")
	}
}
