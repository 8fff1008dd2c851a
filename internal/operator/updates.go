package operator

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/config/clusteroperator/v1helpers"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/operator/updateservice"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/internal/updates/phase"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// fetchEvery is the least time between two requests to the update service; the jitter is as long again, so that
// clusters that were started together do not send requests together.
const fetchEvery = 2 * time.Minute

// updates fetches the updates of the release from the update service: when the query has changed, and every few
// minutes. It keeps the last good answer.
type updates struct {
	fetch    func(context.Context, updateservice.Query) (*clusterversion.Offer, error)
	insecure bool // plain http will do
	now      func() time.Time
	notify   func() // called when the retrieved updates have changed

	mu        sync.Mutex // guards the following fields
	query     updateservice.Query
	cancel    context.CancelFunc // ends the request for the query, or the pause after it
	retrieved clusterversion.Retrieved
	self      phase.Cluster // this cluster, as phases of updates know it
	problem   string        // error in its settings
	// the generation of the ClusterVersion whose lists are taken over from the operator before; -1 for none
	inherits int64
}

func newUpdates(insecure bool, notify func()) *updates {
	fetch := func(ctx context.Context, query updateservice.Query) (*clusterversion.Offer, error) {
		client, err := oci.HTTPClient(insecure)
		if err != nil {
			return nil, &reason.Error{Reason: updateservice.RemoteFailed, Err: err}
		}
		defer client.CloseIdleConnections()
		return updateservice.Fetch(ctx, client, query)
	}
	return &updates{fetch: fetch, insecure: insecure, now: time.Now, notify: notify, cancel: func() {}}
}

// run fetches updates until ctx ends.
func (u *updates) run(ctx context.Context) error {
	for ctx.Err() == nil {
		attempt, query := u.beginAttempt(ctx)
		if query == (updateservice.Query{}) {
			<-attempt.Done()
			continue
		}
		u.fetchOnce(attempt, query)
		object.Pause(attempt, wait.Jitter(fetchEvery, 1))
	}
	return nil
}

// beginAttempt returns the current query, and a context that ends when the query changes.
func (u *updates) beginAttempt(ctx context.Context) (context.Context, updateservice.Query) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cancel() // cancels the context of the previous attempt, which has ended
	ctx, u.cancel = context.WithCancel(ctx)
	return ctx, u.query
}

// fetchOnce fetches the updates, unless the query changes before there is an answer.
func (u *updates) fetchOnce(ctx context.Context, query updateservice.Query) {
	offer, err := u.fetch(ctx, query)
	if ctx.Err() != nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.query != query {
		return
	}
	if before := u.retrieved.Err; err != nil && (before == nil || before.Error() != err.Error()) {
		ctrl.LoggerFrom(ctx).Info("updates not retrieved", "reason", err.Error())
	}
	u.retrieved.Err, u.retrieved.IsPending = err, false
	if err == nil {
		u.retrieved = clusterversion.Retrieved{Version: query.Version, Offer: offer, Time: time.Now()}
	}
	u.notify()
}

// follow sets the query for the applied release, and returns its retrieved updates. An operator that has just started
// inherits the lists of the ClusterVersion, if they belong to the same spec and version.
func (u *updates) follow(v *configv1.ClusterVersion, applied *clusterversion.AppliedRelease) *clusterversion.Retrieved {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.inherits == 0 {
		u.inherits = -1
		if v.Status.ObservedGeneration == v.Generation {
			u.inherits = v.Generation
		}
	}
	if applied == nil {
		return nil
	}
	query := updateservice.Query{
		URL: string(v.Spec.Upstream), Channel: v.Spec.Channel, Version: applied.Release.Version,
		Architecture: architecture,
		ClusterID:    string(v.Spec.ClusterID), Insecure: u.insecure,
	}
	if query != u.query {
		u.query, u.retrieved = query, clusterversion.Retrieved{Version: query.Version, IsPending: true}
		if offer := offerOf(v.Status); offer != nil && u.inherits == v.Generation &&
			v.Status.Desired.Version == query.Version {
			u.retrieved.Offer, u.retrieved.Time, u.retrieved.IsInherited = offer, time.Now(), true
		}
		u.inherits = -1
		u.cancel()
	}
	u.self, u.problem = clusterOf(v)
	return u.current()
}

// current returns the retrieved updates that are open for this cluster now. The caller holds the mutex.
func (u *updates) current() *clusterversion.Retrieved {
	current := u.retrieved
	current.Problem = u.problem
	if current.Offer != nil {
		current.Offer, current.OpensAt = current.Offer.At(u.self, u.now())
	}
	return &current
}

// The settings of a cluster by which updates open for it: a label, and an annotation of the ClusterVersion.
const (
	ringLabel          = "runlevel.dev/ring"
	warinessAnnotation = "runlevel.dev/wariness"
)

// clusterOf returns a cluster as phases of updates know it, and the error in its settings.
func clusterOf(v *configv1.ClusterVersion) (c phase.Cluster, problem string) {
	c = phase.Cluster{ID: string(v.Spec.ClusterID), Ring: v.Labels[ringLabel]}
	if text, isSet := v.Annotations[warinessAnnotation]; isSet {
		wariness, err := strconv.ParseFloat(text, 64)
		if err != nil || !(wariness >= 0 && wariness <= 1) {
			return c, fmt.Sprintf("The annotation %s: Invalid value: %q: write a number from 0 to 1, such as 0.9",
				warinessAnnotation, printable.Line(printable.Truncate(text, 100)))
		}
		c.Wariness = &wariness
	}
	return c, ""
}

// lastAnswer returns when the service last gave this operator a good answer; zero if it never did.
func (u *updates) lastAnswer() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.retrieved.IsInherited {
		return time.Time{}
	}
	return u.retrieved.Time
}

// offerOf returns the updates of a status as an update service has offered them; nil if none has ever answered.
func offerOf(s configv1.ClusterVersionStatus) *clusterversion.Offer {
	isEmpty := len(s.AvailableUpdates)+len(s.ConditionalUpdates) == 0
	if isEmpty && !v1helpers.IsStatusConditionTrue(s.Conditions, configv1.RetrievedUpdates) {
		return nil
	}
	offer := &clusterversion.Offer{Updates: slices.Clone(s.AvailableUpdates)}
	for _, update := range s.ConditionalUpdates {
		isSame := func(release configv1.Release) bool { return release.Image == update.Release.Image }
		offer.Updates = slices.DeleteFunc(offer.Updates, isSame) // it is recommended
		offered := configv1.ConditionalUpdate{Release: update.Release}
		for _, risk := range update.Risks {
			if !clusterversion.IsClusterRisk(risk) {
				risk.Conditions = nil
				offered.Risks = append(offered.Risks, risk)
			}
		}
		if len(offered.Risks) == 0 {
			offer.Updates = append(offer.Updates, update.Release)
		} else {
			offer.Conditional = append(offer.Conditional, offered)
		}
	}
	return offer
}

// last returns the updates that were retrieved last, and are open for this cluster.
func (u *updates) last() *clusterversion.Retrieved {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.current()
}
