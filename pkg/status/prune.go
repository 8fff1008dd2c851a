package status

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/version"

	configv1 "github.com/openshift/api/config/v1"
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
	older, newer := olderCompleted(history, at), newerCompleted(history, at)
	isBetween := older != nil && newer != nil
	switch {
	case isCompleted(history[at]) && !(isBetween && isSameMinor(*older, history[at]) && isSameMinor(history[at], *newer)):
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

// olderCompleted returns the next older entry that was completed, and nil if there is none.
func olderCompleted(history []configv1.UpdateHistory, at int) *configv1.UpdateHistory {
	for i := at + 1; i < len(history); i++ {
		if isCompleted(history[i]) {
			return &history[i]
		}
	}
	return nil
}

// newerCompleted returns the next newer entry that was completed, and nil if there is none.
func newerCompleted(history []configv1.UpdateHistory, at int) *configv1.UpdateHistory {
	for i := at - 1; i >= 0; i-- {
		if isCompleted(history[i]) {
			return &history[i]
		}
	}
	return nil
}

// isSameMinor returns whether two entries are of the same major and minor version. A version that can't be read is
// only like itself.
func isSameMinor(a, b configv1.UpdateHistory) bool {
	of, to := parse(a.Version), parse(b.Version)
	if of == nil || to == nil {
		return a.Version == b.Version
	}
	return of.Major() == to.Major() && of.Minor() == to.Minor()
}

// parse reads a version, and returns nil if it is none.
func parse(text string) *version.Version {
	parsed, err := version.ParseGeneric(text)
	if err != nil {
		return nil
	}
	return parsed
}
