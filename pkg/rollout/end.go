package rollout

import (
	"cmp"
	"errors"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/reason"
	"github.com/runlevel/runlevel/pkg/record"
)

// How much of a failed run stays in the history: a hundred entries have to fit into a record.
const (
	mostFailures = 5
	mostMessage  = 300
)

// stopped returns how the run ended, for the history: why it has not completed the update, and
// the first objects that failed or were not ready.
func (r *rollout) stopped() record.End {
	report := r.outcome.Report
	end := record.End{Time: metav1.NewTime(r.cluster.Now().Truncate(time.Second)), Message: "it was applied with --no-wait, and nobody knows whether it is ready"}
	if report.Err != nil {
		end.Reason, end.Message = reasonOf(report.Err), report.Err.Error()
	}
	if report.Left != nil {
		end.Message = report.Left.Error
	}
	end.Message = shortened(strings.TrimSuffix(end.Message, ":"))
	for _, change := range report.Changes {
		if change.Action == object.Failed {
			failed := record.Failure{ID: change.Err.ID, File: change.Err.Path, Reason: change.Err.Reason, Message: shortened(change.Err.Err.Error())}
			end.Failures = append(end.Failures, failed)
		}
	}
	for _, wait := range report.Waits {
		what := "not ready: "
		if wait.IsRetry {
			what = "not applied: "
		}
		end.Failures = append(end.Failures, record.Failure{ID: wait.ID, File: wait.File, Reason: wait.Reason, Message: what + shortened(wait.For)})
	}
	if end.More = len(end.Failures) - mostFailures; end.More > 0 {
		end.Failures = end.Failures[:mostFailures]
	}
	end.More = max(end.More, 0)
	return end
}

// reasonOf returns the reason of an error, in the words of the cluster-version operator.
func reasonOf(err error) string {
	var failure *object.Failure
	if errors.As(err, &failure) {
		return cmp.Or(failure.Reason, reason.Of(err))
	}
	return reason.Of(err)
}

// shortened returns the first line of a text, as much of it as the history keeps.
func shortened(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	if text = printable.Line(text); len(text) > mostMessage {
		text = strings.ToValidUTF8(text[:mostMessage], "") + "…"
	}
	return text
}
