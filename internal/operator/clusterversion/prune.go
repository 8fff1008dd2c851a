package clusterversion

import (
	"slices"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/pkg/precondition"
)

// The weights of entries, as the cluster-version operator gives them: the one that weighs least is removed.
const (
	weightNeeded     = 1000.0 // the first of all, the newest five, and the latest one that was completed
	weightOfMinor    = 30.0   // the first or the last that was completed in a minor version
	weightOnTheWay   = 20.0   // partial, on the way from one minor version to the next
	weightOfAttempt  = -20.0  // partial, on the way from one patch to another
	weightOfOneOlder = -1.01  // for each entry that is newer
	newest           = 5
)

// pruned returns a history, newest first, with at most so many entries.
func pruned(history []configv1.UpdateHistory, most int) []configv1.UpdateHistory {
	for len(history) > most {
		lightest, least := 0, 0.0
		for i := range history {
			if weight := weigh(history, i); i == 0 || weight < least {
				lightest, least = i, weight
			}
		}
		history = slices.Delete(history, lightest, lightest+1)
	}
	return history
}

func weigh(history []configv1.UpdateHistory, at int) float64 {
	age := weightOfOneOlder * float64(at)
	if at < newest || at == len(history)-1 || at == slices.IndexFunc(history, isCompleted) {
		return weightNeeded + age
	}
	older := LastCompleted(history[at+1:])
	var newer *configv1.UpdateHistory
	for i := range history[:at] {
		if isCompleted(history[i]) {
			newer = &history[i]
		}
	}
	isBetween := older != nil && newer != nil
	switch {
	case isCompleted(history[at]) &&
		!(isBetween && isSameMinor(*older, history[at]) && isSameMinor(history[at], *newer)):
		return weightOfMinor + age
	case isCompleted(history[at]) || !isBetween:
		return age
	case !isSameMinor(*older, *newer):
		return weightOnTheWay + age
	case older.Version != newer.Version:
		return weightOfAttempt + age
	default:
		return age
	}
}

func isCompleted(entry configv1.UpdateHistory) bool { return entry.State == configv1.CompletedUpdate }

// LastCompleted returns the newest entry that was completed, and nil if there is none.
func LastCompleted(history []configv1.UpdateHistory) *configv1.UpdateHistory {
	if at := slices.IndexFunc(history, isCompleted); at >= 0 {
		return &history[at]
	}
	return nil
}

// isSameMinor reports whether two entries are of the same major and minor version. A version that can't be read is
// only like itself.
func isSameMinor(a, b configv1.UpdateHistory) bool {
	return a.Version == b.Version || a.Version != "" && !precondition.IsMinor(a.Version, b.Version)
}
