package operator

import (
	"cmp"
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/pkg/apply"
)

// TestNoWaitIsForgottenBeforeItIsToldAgain: Progressing would name what is waited for at times, and at other times not.
func TestNoWaitIsForgottenBeforeItIsToldAgain(t *testing.T) {
	const usual = 10 * time.Second // of package apply
	every := cmp.Or((&applier{}).sessionOptions(&target{}).Apply.ReportWaits, usual)
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	fold := progress.New(progress.Intent{Began: began})
	fold.Event(apply.Event{Time: began, Type: apply.Waiting, Object: &kinds.ID{Kind: "Deployment", Namespace: "shop", Name: "web"}, Message: "0 of 1 replicas are available"})
	fold.At(began.Add(2 * every)) // asking pods takes a while
	if len(fold.Progress().Waits) != 1 {
		t.Errorf("a wait that is told every %s is forgotten", every)
	}
}
