package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A ListedRelease is a release in the list of those on a cluster. It is an element of the output of -o json.
type ListedRelease struct {
	Release   string       `json:"release"`
	Namespace string       `json:"namespace"` // namespace of the record
	Version   string       `json:"version,omitempty"`
	Previous  string       `json:"previous,omitempty"` // the version that was completed before
	Source    string       `json:"source,omitempty"`
	State     ReleaseState `json:"state"`
	// percentage of its objects that are applied and ready; absent if unknown
	Percent  *int         `json:"percent,omitempty"`
	Since    *time.Time   `json:"since,omitempty"` // time when the version was completed, or else begun
	KeptBy   ReleaseOwner `json:"keptBy"`
	Holder   string       `json:"holder,omitempty"` // holder of the lock
	Deletes  int          `json:"deletes"`          // number of pending deletes
	Problems []string     `json:"problems"`         // the most severe first
	// gates that block the next minor version, or the requested one
	Blocks    []Gate   `json:"blocks,omitempty"`
	Requested string   `json:"requested,omitempty"` // version or image that the ClusterVersion requests, if another one
	Updates   []Update `json:"updates,omitempty"`   // updates that the update service offers
	Unknown   []string `json:"unknown,omitempty"`
}

// A ReleaseState is the state of a release in a word.
type ReleaseState string

// The states of releases.
const (
	ReleaseComplete   ReleaseState = "Complete"
	ReleaseApplying   ReleaseState = "Applying"   // a process applies it
	ReleaseIncomplete ReleaseState = "Incomplete" // its newest version was not completed, and no process applies it
	// it was completed, and its only problems are tests that have failed
	ReleaseFailedTests  ReleaseState = "FailedTests"
	ReleaseDegraded     ReleaseState = "Degraded"     // it was completed, and has problems
	ReleaseLost         ReleaseState = "Lost"         // it has objects on the cluster, and no record
	ReleaseUninstalling ReleaseState = "Uninstalling" // an uninstall has begun: some of its objects were deleted
	ReleaseUnknown      ReleaseState = "Unknown"      // it was completed, and something could not be read
)

// A ReleaseOwner is who keeps a release in place.
type ReleaseOwner string

// The processes that may keep a release in place.
const (
	ByOperator ReleaseOwner = "operator"
	ByWatch    ReleaseOwner = "watch" // an apply with --watch
	ByNone     ReleaseOwner = "none"
)

// List returns the releases on the cluster that have a record in the reader's namespace, or in any namespace if it is
// empty, and those whose record is lost. With an error, it also returns those that can be read.
func (r *Reader) List(ctx context.Context) ([]ListedRelease, error) {
	namespaces := []string{r.Namespace}
	if r.Namespace == metav1.NamespaceAll {
		var err error
		if namespaces, err = record.Namespaces(ctx, r.Cluster.Client, ""); err != nil {
			return nil, err
		}
	}
	found, unread := []ListedRelease{}, []error(nil)
	for _, namespace := range namespaces {
		reader := &Reader{Cluster: r.Cluster, Namespace: namespace, Applied: r.Applied}
		records, err := reader.Records(ctx, "")
		unread = append(unread, err)
		for _, known := range records {
			found = append(found, reader.listed(ctx, known))
		}
	}
	lost, err := r.FindLost(ctx, "")
	for _, release := range lost {
		if !isListed(found, release.Name) && len(release.Elsewhere) == 0 {
			found = append(found, release.listed())
		}
	}
	return found, cmp.Or(ctx.Err(), errors.Join(append(unread, err)...))
}

// ListWithVersion is like List, and also returns the release of a ClusterVersion without a record: an operator may not
// have applied its first release yet, or is the cluster-version operator.
func (r *Reader) ListWithVersion(ctx context.Context) ([]ListedRelease, error) {
	found, err := r.List(ctx)
	if r.Namespace != metav1.NamespaceAll && r.Namespace != session.DefaultNamespace ||
		isListed(found, payload.DefaultName) {
		return found, err
	}
	s := &Status{Release: payload.DefaultName}
	if r.addClusterVersion(ctx, s); s.ClusterVersion != nil {
		r.addKeeper(ctx, s)
		r.addOperators(ctx, s)
		found = append(found, r.listedStatus(s))
	}
	return found, cmp.Or(ctx.Err(), err)
}

func isListed(found []ListedRelease, name string) bool {
	return slices.ContainsFunc(found, func(listed ListedRelease) bool { return listed.Release == name })
}

// listed returns the list's element of a release without a record.
func (u *UnrecordedRelease) listed() ListedRelease {
	listed := ListedRelease{
		Release:   u.Name,
		Namespace: u.namespace,
		State:     ReleaseLost,
		KeptBy:    ByNone,
		Problems:  []string{u.String()},
	}
	if u.newest != nil {
		listed.Version = u.newest.Version
	}
	return listed
}

// listed returns the list's element of one release.
func (r *Reader) listed(ctx context.Context, known *record.Record) ListedRelease {
	s := &Status{Release: known.Release}
	r.addRecord(ctx, s, known)
	r.addClusterVersion(ctx, s)
	r.addOperators(ctx, s)
	found := r.listedStatus(s)
	if newest := known.Newest(); newest != nil {
		found.Since, found.Source = &newest.Started.Time, newest.Source
		if newest.Completed != nil {
			found.Since = &newest.Completed.Time
		}
	}
	if s.Lock != nil && !s.Lock.Expired {
		found.Holder = s.Lock.Holder
	}
	return found
}

// listedStatus returns the list's element of a status, without the fields that only a record has.
func (r *Reader) listedStatus(s *Status) ListedRelease {
	s.Time, s.Done = r.Cluster.Now().UTC().Truncate(time.Second), s.Done && s.isHealthy()
	found := ListedRelease{
		Release: s.Release, Namespace: cmp.Or(r.Namespace, session.DefaultNamespace), Version: s.Version,
		Previous: s.Previous, Percent: s.Percent, State: s.Word(), KeptBy: s.keptBy(), Deletes: len(s.pending()),
		Problems: s.problems(), Blocks: append(s.Gates, s.gates()...), Unknown: s.Unknown,
	}
	if s.ClusterVersion != nil {
		found.Requested, found.Updates = s.ClusterVersion.Requested, s.ClusterVersion.Updates
	}
	return found
}

// Word returns the state of a release in a word.
func (s *Status) Word() ReleaseState {
	isHeld := s.Lock != nil && !s.Lock.Expired
	switch {
	case s.Lost != nil:
		return ReleaseLost
	case s.Uninstall != nil:
		return ReleaseUninstalling
	case isHeld && (s.State != record.Completed || s.Progress != nil):
		return ReleaseApplying
	case s.State != record.Completed:
		return ReleaseIncomplete
	case s.Done && len(s.Unknown) == 0:
		return ReleaseComplete
	case len(s.problems()) == 0:
		return ReleaseUnknown
	case len(s.problems()) == len(s.failedTests()):
		return ReleaseFailedTests
	default:
		return ReleaseDegraded
	}
}

// keptBy returns who keeps a release in place. Only the operator keeps a release for which there is a ClusterVersion.
func (s *Status) keptBy() ReleaseOwner {
	switch {
	case s.Lock == nil || s.Lock.Expired || !s.Lock.Watching:
		return ByNone
	case s.ClusterVersion != nil:
		return ByOperator
	default:
		return ByWatch
	}
}

// problems returns the problems of a release, each in a line.
func (s *Status) problems() []string {
	lines := []string{}
	if s.Uninstall != nil {
		lines = append(lines, s.Uninstall.String())
	}
	for _, object := range s.Objects {
		if object.State == why.Blocked {
			continue
		}
		line := fmt.Sprintf("%s: %s", object.Object, object.State)
		if len(object.Messages) > 0 {
			line = fmt.Sprintf("%s: %s", object.Object, object.Messages[0].Text)
		}
		lines = append(lines, printable.Line(line))
	}
	for _, failed := range s.failedTests() {
		lines = append(lines, printable.Line(fmt.Sprintf("test %s: %s: %s", failed.ID, failed.Reason, failed.Message)))
	}
	if s.Missing > 0 {
		lines = append(lines, "missing: "+why.MissingText(s.Missing, s.MissingObjects))
	}
	if s.NotKept != nil {
		lines = append(lines, printable.Line(s.NotKept.Message))
	}
	for _, operator := range s.Operators {
		if operator.rank() < otherRank {
			lines = append(lines, printable.Line("ClusterOperator "+operator.Name+" is not healthy"))
		}
	}
	if s.ClusterVersion != nil {
		for _, c := range s.ClusterVersion.Conditions {
			if c.isWrong() {
				lines = append(lines,
					printable.Line(fmt.Sprintf("ClusterVersion: %s=%s: %s", c.Type, c.Status, c.Message)))
			}
		}
	}
	return lines
}
