// Package remediation has the rules that the MachineHealthChecks of both APIs share: when a timeout is over, how many
// machines may be unhealthy, which changes of a Node matter, and which objects request remediation by another
// controller. The health of a machine, and its consequences, differ between the APIs: they are in the packages
// healthcheck.
//
// It writes nothing, except that Requests.End deletes a request.
//
// Census is the type to start from.
package remediation

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// DefaultNodeStartupTimeout is how long a machine may be without a node, if the health check has no timeout.
const DefaultNodeStartupTimeout = 10 * time.Minute

// Over reports whether a timeout is over, and otherwise when to check again.
func Over(since time.Time, timeout time.Duration, now time.Time) (isOver bool, again time.Duration) {
	left := since.Add(timeout).Sub(now)
	if left < 0 {
		return true, 0
	}
	return false, left + time.Second // times of conditions have no fractions of a second
}

// Earliest returns the shorter duration; zero is none.
func Earliest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// MostUnhealthy returns how many of some machines may be unhealthy while machines are remediated. Percentages are
// rounded down; without a limit, all may be.
func MostUnhealthy(limit *intstr.IntOrString, machines int) (int, error) {
	if limit == nil {
		return machines, nil
	}
	value := *limit
	if value.Type == intstr.String { // a string without a percent sign is a number too
		if number := intstr.Parse(value.StrVal); number.Type == intstr.Int {
			value = number
		}
	}
	most, err := intstr.GetScaledValueFromIntOrPercent(&value, machines, false)
	if err != nil {
		return 0, fmt.Errorf("%q is neither a number nor a percentage", limit.String())
	}
	return max(0, most), nil
}

// A Census has the numbers of machines that a health check selects, and of those that are healthy, and the range of
// unhealthy machines within which machines are remediated.
type Census struct {
	Machines, Healthy, Least, Most int
}

// Unhealthy is how many machines are not known to be healthy.
func (c Census) Unhealthy() int { return c.Machines - c.Healthy }

// AllowsRemediation is false if so many machines are unhealthy that the cause is probably elsewhere, or fewer than the
// least.
func (c Census) AllowsRemediation() bool { return c.Unhealthy() >= c.Least && c.Unhealthy() <= c.Most }

// Left is how many further machines may become unhealthy before remediation stops.
func (c Census) Left() int32 { return int32(max(0, c.Most-c.Unhealthy())) }
