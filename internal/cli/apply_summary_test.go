package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/tombstone"
)

// An object that another manager has made anew holds back no update, and is not said to.
func TestWhatIsMadeAnewHoldsNothingBack(t *testing.T) {
	object := func(name string) kinds.ID { return kinds.ID{Kind: "ConfigMap", Namespace: "shop", Name: name} }
	var out strings.Builder
	applySummary{Deletes: []pendingDelete{
		{Object: object("held"), Is: tombstone.Terminating, State: "terminating for 5s"},
		{Object: object("back"), Is: tombstone.Reappeared, State: "made anew by painter"},
	}}.print(&out, time.Now())
	const want = `
  deletes that are pending, and hold back the next minor update:
    ConfigMap shop/held: terminating for 5s
  deleted, and made anew by another manager, which holds back nothing:
    ConfigMap shop/back: made anew by painter
`
	if !strings.Contains(out.String(), want) {
		t.Errorf("it says:\n%s\nwant:%s", &out, want)
	}
}
