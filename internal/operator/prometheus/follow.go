package prometheus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/operator/clusterversion"
)

// The pace of requests.
const (
	betweenQueries = time.Second
	queryInterval  = time.Hour
	retryInterval  = time.Minute // between evaluations of a query that fails
	alertInterval  = 2 * time.Minute
	followTimeout  = 10 * time.Minute // since the last Follow, after which a query is not evaluated
	resultLifetime = 24 * time.Hour   // since the last Follow
)

// A Follower follows queries and alerts.
type Follower struct {
	client *client
	notify func() // called when a result has changed

	wake chan struct{} // receives an element when there is a new query

	alertsAt time.Time // time of the last request for alerts; used by Run only

	mu       sync.Mutex                // guards the following fields
	queries  map[string]*followedQuery // nil until Follow is called: another replica leads
	alerts   []clusterversion.Alert    // from the last request that succeeded
	hasRead  bool                      // a request for alerts has succeeded
	alertErr error                     // why alerts can't be read; nil after a request that succeeded
}

// A followedQuery is a query, and its last result.
type followedQuery struct {
	result     clusterversion.QueryResult
	evaluated  time.Time // zero before the first time
	followedAt time.Time
}

// New returns a follower; nil if its URL is None.
func New(o Options, notify func()) (*Follower, error) {
	if err := o.Check(); o.URL == None || err != nil {
		return nil, err
	}
	return newFollower(o.orOpenShifts(serviceCA), notify)
}

func newFollower(o Options, notify func()) (*Follower, error) {
	client, err := newClient(o)
	if err != nil && !errors.Is(err, errMissing) {
		return nil, err
	}
	f := &Follower{client: client, notify: notify, wake: make(chan struct{}, 1)}
	if errors.Is(err, fs.ErrNotExist) {
		f.alertErr = err // not OpenShift, or not yet: nothing to report
	}
	return f, nil
}

// Follow has queries evaluated, and returns the last results. It returns nil without a Prometheus, or
// while OpenShift's does not exist.
func (f *Follower) Follow(queries []string) *clusterversion.Monitoring {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now, results := time.Now(), map[string]clusterversion.QueryResult{}
	isNew := f.queries == nil
	if isNew {
		f.queries = map[string]*followedQuery{}
	}
	for _, query := range queries {
		followed := f.queries[query]
		if followed == nil {
			followed, isNew = &followedQuery{}, true
			f.queries[query] = followed
		}
		followed.followedAt = now
		if !followed.evaluated.IsZero() {
			results[query] = followed.result
		}
	}
	if isNew {
		select {
		case f.wake <- struct{}{}:
		default: // Run has not read the last element yet
		}
	}
	if f.isMissing() {
		return nil
	}
	return &clusterversion.Monitoring{
		Queries: results, Alerts: slices.Clone(f.alerts), HasAlerts: f.hasRead, AlertErr: f.alertErr,
	}
}

// Run sends requests until ctx ends.
func (f *Follower) Run(ctx context.Context) error {
	if f == nil {
		return nil
	}
	select {
	case <-ctx.Done():
	case <-f.wake: // Follow was called for the first time
	}
	for ctx.Err() == nil {
		wait := f.next(ctx, time.Now())
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		case <-f.wakeAfter(wait):
		}
	}
	return nil
}

// wakeAfter returns a channel that ends a pause; nil for the pause between two queries, which nothing ends.
func (f *Follower) wakeAfter(wait time.Duration) <-chan struct{} {
	if wait <= betweenQueries {
		return nil
	}
	return f.wake
}

// next sends the request that is due, if any, and returns the pause after it.
func (f *Follower) next(ctx context.Context, now time.Time) time.Duration {
	if !now.Before(f.alertsAt.Add(alertInterval)) {
		f.readAlerts(ctx)
		now = time.Now()
		f.alertsAt = now
	}
	query, due := f.nextQuery(now)
	if f.isMissing() {
		query = ""
	}
	if query == "" || due.After(now) {
		pause := f.alertsAt.Add(alertInterval).Sub(now)
		if query != "" {
			pause = min(pause, due.Sub(now))
		}
		return max(pause, betweenQueries+time.Millisecond)
	}
	matches, err := f.client.query(ctx, query)
	if ctx.Err() == nil && f.setResult(query, clusterversion.QueryResult{Matches: matches, Err: err}) {
		f.notify()
	}
	return betweenQueries
}

// setResult sets the result of a query, and reports whether it has changed. While a query fails, its first error stays:
// the text of an error may differ each time.
func (f *Follower) setResult(query string, result clusterversion.QueryResult) (hasChanged bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	followed := f.queries[query]
	before, isFirst := followed.result, followed.evaluated.IsZero()
	followed.evaluated = time.Now()
	if !isFirst && before.Err != nil && result.Err != nil {
		return false
	}
	followed.result = result
	return isFirst || before.Matches != result.Matches || (before.Err == nil) != (result.Err == nil)
}

// nextQuery returns the query that is due first, and when. It removes the ones that were not followed for long.
func (f *Follower) nextQuery(now time.Time) (string, time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.queries, func(_ string, followed *followedQuery) bool {
		return now.Sub(followed.followedAt) > resultLifetime
	})
	var first string
	var firstDue time.Time
	for _, query := range slices.Sorted(maps.Keys(f.queries)) {
		followed := f.queries[query]
		due := followed.evaluated
		switch {
		case followed.evaluated.IsZero():
		case followed.result.Err != nil:
			due = due.Add(retryInterval)
		default:
			due = due.Add(queryInterval)
		}
		if now.Sub(followed.followedAt) > followTimeout {
			continue
		}
		if first == "" || due.Before(firstDue) {
			first, firstDue = query, due
		}
	}
	return first, firstDue
}

// isMissing reports whether the server did not exist at the last request.
func (f *Follower) isMissing() bool { return errors.Is(f.alertErr, errMissing) }

// readAlerts reads the firing alerts. If that fails, the last ones count, and the first error stays: the text of an
// error may differ each time. Only an error of a server that exists replaces that of a missing one, and vice versa.
func (f *Follower) readAlerts(ctx context.Context) {
	alerts, err := f.client.alerts(ctx)
	if ctx.Err() != nil {
		return
	}
	slices.SortFunc(alerts, func(a, b clusterversion.Alert) int {
		return cmp.Or(cmp.Compare(a.Labels["alertname"], b.Labels["alertname"]), a.Since.Compare(b.Since),
			cmp.Compare(fmt.Sprint(a.Labels), fmt.Sprint(b.Labels)))
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		f.alerts, f.hasRead, f.alertErr = alerts, true, nil
	case f.alertErr == nil, f.isMissing() != errors.Is(err, errMissing),
		f.isMissing() && f.alertErr.Error() != err.Error():
		f.alertErr = err
		ctrl.LoggerFrom(ctx).Info("alerts not read", "reason", err.Error())
	default:
		return
	}
	f.notify()
}
