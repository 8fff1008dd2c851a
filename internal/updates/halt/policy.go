// Package halt decides from the reports of clusters when an update halts, and when its ramps may begin. It is pure: the
// log of reports, the phases and the time are its input, so the same log gives the same answer on every machine.
//
// Anyone who can send reports can halt an update, but not open one: failures are counted in absolute numbers, so that
// forged successes do not dilute them, and only reports that were sent with a token open a ramp.
//
// Start with Judge.
package halt

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Policy is the part of a file phases/*.yaml that needs reports.
type Policy struct {
	// MaxFailures is the number of clusters that may fail, as in Open Cluster Management: one more halts the update. A
	// percentage is of Clusters. Nil means that nothing halts it.
	MaxFailures *intstr.IntOrString `json:"maxFailures,omitempty"`
	// Clusters is the size of the fleet. Reports of more clusters halt the update: some are forged.
	Clusters int `json:"clusters,omitempty"`
	// MaxPerAddress is the number of clusters behind one address. Reports of more halt the update. 0 means any number.
	MaxPerAddress int `json:"maxPerAddress,omitempty"`
	// MinSuccessTime is the time after a success in which a failure still counts as one of the update. After.For is at
	// least as long.
	MinSuccessTime metav1.Duration `json:"minSuccessTime,omitzero"`
	// ProgressDeadline is the time after which a cluster that began and did not finish counts as failed.
	ProgressDeadline metav1.Duration `json:"progressDeadline,omitzero"`
	After            After           `json:"after,omitzero"`
}

// After is what all ramps wait for. The clusters of Phase.First do not wait.
type After struct {
	Successes int             `json:"successes,omitempty"` // clusters that succeeded
	For       metav1.Duration `json:"for,omitzero"`        // and have been healthy since
}

// Validate returns all mistakes in a policy.
func (p *Policy) Validate() error {
	var problems []error
	forbid := func(isWrong bool, format string, args ...any) {
		if isWrong {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	lengths := min(p.MinSuccessTime.Duration, p.ProgressDeadline.Duration, p.After.For.Duration)
	forbid(min(p.Clusters, p.MaxPerAddress, p.After.Successes) < 0 || lengths < 0, "a number or a duration is negative")
	forbid(p.After.For.Duration > 0 && p.After.Successes == 0, "after.for needs after.successes, a number of clusters")
	if p.MaxFailures == nil {
		forbid(p.ProgressDeadline.Duration+p.MinSuccessTime.Duration > 0 && p.After.Successes == 0,
			"progressDeadline and minSuccessTime need maxFailures: 0 halts at the first failure")
		return errors.Join(problems...)
	}
	number, err := intstr.GetScaledValueFromIntOrPercent(p.MaxFailures, 100, false)
	isShare := p.MaxFailures.Type == intstr.String
	limit := printable.Line(p.MaxFailures.String())
	forbid(err != nil || number < 0 || isShare && number > 100,
		"maxFailures %s is neither a number nor a percentage, such as 10 or 1%%", limit)
	forbid(isShare && p.Clusters == 0, "maxFailures %s needs clusters, the number that it is a percentage of", limit)
	return errors.Join(problems...)
}

// soak returns for how long a cluster has to be healthy after its success.
func (p *Policy) soak() time.Duration { return max(p.MinSuccessTime.Duration, p.After.For.Duration) }

// tolerated returns how many clusters may fail.
func (p *Policy) tolerated() int {
	number, _ := intstr.GetScaledValueFromIntOrPercent(p.MaxFailures, p.Clusters, false) // Validate has checked it
	return number
}

// A Phase is an update to a version.
type Phase struct {
	To   string
	From *regexp.Regexp // versions before; nil means all
	Policy
}
