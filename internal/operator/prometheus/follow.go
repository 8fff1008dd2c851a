package prometheus

import (
	"cmp"
	"context"
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
	retryInterval  = time.Minute // of a query that failed
	alertInterval  = 2 * time.Minute
	resultLifetime = 24 * time.Hour // of a query that is not followed
)

// A Follower follows queries and alerts.
type Follower struct {
	client *client
	notify func() // called when a result has changed

	// These fields are used by Run only.
	alertsAt   time.Time // time of the last request for alerts
	alertError string    // error of that request

	mu      sync.Mutex
	queries map[string]*followedQuery // nil until Follow is called: another replica leads
	alerts  []clusterversion.Alert
	wake    chan struct{} // receives an element when there is a new query
}

// A followedQuery is a query, and its last result.
type followedQuery struct {
	result     clusterversion.QueryResult
	evaluated  time.Time // zero before the first time
	followedAt time.Time
}

// New returns a follower; nil if the options have no Prometheus.
func New(o Options, notify func()) (*Follower, error) {
	if err := o.Check(); o.URL == "" || err != nil {
		return nil, err
	}
	client, err := newClient(o)
	if err != nil {
		return nil, err
	}
	return &Follower{client: client, notify: notify, wake: make(chan struct{}, 1)}, nil
}

// Follow has queries evaluated, and returns the last results. It returns nil without a Prometheus.
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
	return &clusterversion.Monitoring{Queries: results, Alerts: slices.Clone(f.alerts)}
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
	if alertsDue := f.alertsAt.Add(alertInterval); !now.Before(alertsDue) {
		f.readAlerts(ctx, now)
	}
	query, due := f.nextQuery(now)
	if query == "" || due.After(now) {
		pause := f.alertsAt.Add(alertInterval).Sub(now)
		if query != "" {
			pause = min(pause, due.Sub(now))
		}
		return max(pause, betweenQueries+time.Millisecond)
	}
	matches, err := f.client.query(ctx, query)
	if ctx.Err() != nil {
		return 0
	}
	f.mu.Lock()
	followed := f.queries[query]
	before, isFirst := followed.result, followed.evaluated.IsZero()
	followed.result, followed.evaluated = clusterversion.QueryResult{Matches: matches, Err: err}, time.Now()
	hasChanged := isFirst || before.Matches != matches || errorText(before.Err) != errorText(err)
	f.mu.Unlock()
	if hasChanged {
		f.notify()
	}
	return betweenQueries
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
		if first == "" || due.Before(firstDue) {
			first, firstDue = query, due
		}
	}
	return first, firstDue
}

// readAlerts reads the firing alerts. If that fails, the last ones count.
func (f *Follower) readAlerts(ctx context.Context, now time.Time) {
	f.alertsAt = now
	alerts, err := f.client.alerts(ctx)
	if ctx.Err() != nil {
		return
	}
	if text := errorText(err); text != f.alertError {
		f.alertError = text
		ctrl.LoggerFrom(ctx).Info("alerts read", "error", text)
	}
	if err != nil {
		return
	}
	slices.SortFunc(alerts, func(a, b clusterversion.Alert) int {
		return cmp.Or(cmp.Compare(a.Labels["alertname"], b.Labels["alertname"]), a.Since.Compare(b.Since))
	})
	f.mu.Lock()
	f.alerts = alerts
	f.mu.Unlock()
	f.notify()
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
