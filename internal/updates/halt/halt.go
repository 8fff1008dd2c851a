package halt

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/updates/report"
)

// A Tally is the state of all clusters that have reported the update of a phase. All times are those of the receiver:
// the clocks of clusters may be wrong.
type Tally struct {
	phase     Phase
	clusters  map[string]*cluster
	suspects  map[*cluster]bool // those that have failed or not finished
	addresses map[string]int    // clusters by the address of their first report
	crowded   string            // address of most clusters
	successes int               // clusters that reported one with a token
	reached   time.Time         // since when After is fulfilled
	latest    time.Time         // entry
	returned  time.Time         // when the service last began to listen
	absences  [][2]time.Time    // when it did not listen
}

// A cluster is one that has reported an update.
type cluster struct {
	began, failed, healthy time.Time // healthy since then; all are zero if not
	sent                   time.Time // last report, on the clock of the cluster
	healthySent            time.Time // as healthy, on the clock of the cluster
	latest                 time.Time // report
	isUpdating, hasToken   bool
	reason, address        string
}

const (
	maxClusters = 100_000          // bounds the memory; forged reports of more halt the update
	grace       = 10 * time.Minute // after an absence of the service, in which clusters send what they could not
)

// NewTally returns a tally without reports.
func NewTally(p Phase) *Tally {
	return &Tally{phase: p, clusters: map[string]*cluster{}, suspects: map[*cluster]bool{}, addresses: map[string]int{}}
}

// Add adds an entry of the log.
func (t *Tally) Add(e report.Entry) {
	if e.Received.Before(t.latest) {
		e.Received = t.latest // the clock of the receiver was set back
	}
	t.latest = e.Received
	switch {
	case e.Report == nil:
		t.addAbsence(e.AwaySince, e.Received)
		return
	case e.Version != t.phase.To, e.From != "" && t.phase.From != nil && !t.phase.From.MatchString(e.From):
		return
	}
	t.findReached(e.Received)
	c := t.clusters[e.ID]
	if c == nil {
		if len(t.clusters) == maxClusters {
			return
		}
		c = &cluster{address: e.Address}
		t.clusters[e.ID] = c
		t.addresses[e.Address]++
		if t.addresses[e.Address] > t.addresses[t.crowded] {
			t.crowded = e.Address
		}
	}
	c.latest = e.Received
	switch {
	case e.Condition == report.Began && e.Time.Before(c.sent): // late, the update has ended
	case e.Condition == report.Began:
		c.began, c.healthy, c.isUpdating = e.Received, time.Time{}, true
	case e.Condition == report.Succeeded && c.healthy.IsZero():
		c.healthy, c.healthySent, c.isUpdating = e.Received, e.Time, false
		if e.HasToken && !c.hasToken {
			c.hasToken = true
			t.successes++
		}
	case e.Condition == report.RolledBack, e.Condition == report.Failed && t.isBlamed(c, e):
		c.failed, c.reason, c.healthy, c.isUpdating = e.Received, e.Reason, time.Time{}, false
	}
	if e.Time.After(c.sent) {
		c.sent = e.Time
	}
	if c.isUpdating || !c.failed.IsZero() {
		t.suspects[c] = true
	} else {
		delete(t.suspects, c)
	}
}

// isBlamed reports whether a failure counts as one of the update, which was not healthy for long. A late report counts
// by the clock of the cluster, too.
func (t *Tally) isBlamed(c *cluster, e report.Entry) bool {
	return c.healthy.IsZero() || min(e.Received.Sub(c.healthy), e.Time.Sub(c.healthySent)) <= t.phase.soak()
}

// addAbsence takes the time in which the service did not listen from the times that are waited for.
func (t *Tally) addAbsence(from, until time.Time) {
	if t.returned = until; from.IsZero() || !from.Before(until) {
		return
	}
	t.absences = append(t.absences, [2]time.Time{from, until})
	for _, c := range t.clusters {
		if c.isUpdating {
			c.began = c.began.Add(until.Sub(from))
		}
		if !c.healthy.IsZero() {
			c.healthy = c.healthy.Add(until.Sub(from))
		}
	}
}

// Begin returns when a ramp with this start begins; zero if it waits for successes. It begins later by the time in
// which the service did not listen: otherwise the update would be open for many clusters at once when it returns,
// before the first failure is known.
func (t *Tally) Begin(start, now time.Time) time.Time {
	if t.phase.After.Successes > 0 {
		reached := t.findReached(now)
		if reached.IsZero() {
			return reached
		}
		if reached.After(start) {
			start = reached
		}
	}
	for _, absence := range t.absences {
		begin := start
		if absence[0].After(begin) {
			begin = absence[0]
		}
		start = start.Add(max(0, absence[1].Sub(begin)))
	}
	return start
}

// findReached returns since when enough clusters have succeeded and been healthy; zero if they have not. It does not
// change any more then: a later failure may halt the update.
func (t *Tally) findReached(now time.Time) time.Time {
	needed := t.phase.After.Successes
	if needed == 0 || !t.reached.IsZero() || t.successes < needed {
		return t.reached
	}
	var ends []time.Time
	for _, c := range t.clusters {
		end := c.healthy.Add(t.phase.soak())
		if c.hasToken && !c.healthy.IsZero() && c.failed.IsZero() && !end.After(now) {
			ends = append(ends, end)
		}
	}
	if len(ends) >= needed {
		slices.SortFunc(ends, time.Time.Compare)
		t.reached = ends[needed-1]
	}
	return t.reached
}

// Halt returns why the update halts; "" if it does not. Whatever was reported before a person has resumed it does not
// halt it again.
func (t *Tally) Halt(resumed, now time.Time) string {
	p := &t.phase
	if most := min(cmp.Or(p.Clusters, maxClusters), maxClusters-1); len(t.clusters) > most {
		if count := t.count(resumed, ""); count > most {
			return fmt.Sprintf("%d clusters reported it, but the fleet has at most %d: some reports are forged, or "+
				"clusters is wrong; %d are behind %s", count, most, t.count(resumed, t.crowded), t.crowded)
		}
	}
	if p.MaxPerAddress > 0 && t.addresses[t.crowded] > p.MaxPerAddress {
		if count := t.count(resumed, t.crowded); count > p.MaxPerAddress {
			return fmt.Sprintf("%d clusters behind %s reported it, more than maxPerAddress %d: some reports are forged",
				count, t.crowded, p.MaxPerAddress)
		}
	}
	if p.MaxFailures == nil {
		return ""
	}
	failures := map[string]int{} // by cause
	addresses := map[string]int{}
	count := 0
	for c := range t.suspects {
		if cause := t.cause(c, resumed, now); cause != "" {
			failures[cause]++
			addresses[c.address]++
			count++
		}
	}
	if count <= p.tolerated() {
		return ""
	}
	return t.explain(count, failures, addresses)
}

// count returns the clusters that have reported since a time, behind an address or any.
func (t *Tally) count(since time.Time, address string) int {
	count := 0
	for _, c := range t.clusters {
		if c.latest.After(since) && (address == "" || c.address == address) {
			count++
		}
	}
	return count
}

// cause returns why a cluster counts as failed; "" if it does not.
func (t *Tally) cause(c *cluster, resumed, now time.Time) string {
	if c.failed.After(resumed) {
		return cmp.Or(printable.Shorten(c.reason, 100), "no reason")
	}
	patience := t.phase.ProgressDeadline.Duration
	if patience > 0 && c.isUpdating && now.Sub(t.returned) > grace && now.Sub(c.began) > patience &&
		c.began.Add(patience).After(resumed) {
		return fmt.Sprintf("not finished after %s", patience)
	}
	return ""
}

// explain returns the reason of a halt for failures. It names the address of most, in case they are forged.
func (t *Tally) explain(count int, failures, addresses map[string]int) string {
	clusters := printable.Count(count, "cluster")
	if t.phase.Clusters > 0 {
		clusters = fmt.Sprintf("%d of %d clusters", count, t.phase.Clusters)
	}
	var causes []string
	for _, cause := range mostFrequent(failures) {
		causes = append(causes, fmt.Sprintf("%d× %s", failures[cause], cause))
	}
	address := mostFrequent(addresses)[0]
	source := fmt.Sprintf("from %d addresses", len(addresses))
	if addresses[address]*2 > count {
		source = fmt.Sprintf("%d from %s", addresses[address], address)
	}
	return fmt.Sprintf("%s failed, more than maxFailures %s: %s (%s)", clusters, t.phase.MaxFailures,
		printable.Few(causes, 3), source)
}

func mostFrequent(counts map[string]int) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
}
