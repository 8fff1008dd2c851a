package manager_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// longestOutage limits the time in which etcd acknowledges no write, and lists no members. It measures no speed: when a
// member ends, the others elect a leader within seconds, and the slowest write of half an hour beside other work took
// 7.3 s. Without a quorum there are no writes until another member is back.
const longestOutage = time.Minute

// errOtherVoters is the result of a look during which the voters have changed.
var errOtherVoters = errors.New("the voting members have changed meanwhile")

// A quorumWatch looks, again and again, at which voters answer.
type quorumWatch struct {
	cluster *etcdCluster

	mu           sync.Mutex
	last         map[string]bool // the voters that were counted last, and whether they answered
	listed       time.Time       // the last time
	unlisted     time.Duration   // the longest time without a list of members
	fewest, most int             // voters
	lost         int             // voters that were removed because they did not answer, and are not replaced yet
	minorities   []string        // looks at which no majority of the voters answered
}

func newQuorumWatch(c *etcdCluster) *quorumWatch {
	return &quorumWatch{cluster: c, listed: time.Now(), fewest: 3, most: 3}
}

// count counts the voters by a list that takes a quorum. A voter that does not answer, and whose machine is being
// deleted, may be removed before its replacement votes: it counts as a voter until there are three again.
func (w *quorumWatch) count(ctx context.Context) {
	answers, err := w.cluster.askVoters(ctx)
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unlisted = max(w.unlisted, time.Since(w.listed))
	if err == nil || errors.Is(err, errOtherVoters) {
		w.listed = time.Now()
	}
	if err != nil {
		return
	}
	for name, answered := range w.last {
		if _, isVoter := answers[name]; !isVoter && !answered {
			w.lost++
		}
	}
	if len(answers) >= 3 {
		w.lost = 0
	}
	w.last = answers
	w.fewest, w.most = min(w.fewest, len(answers)+w.lost), max(w.most, len(answers))
}

// lookForMajority looks whether more than half of the voters answer, by a list that any member has. A minority is
// looked at again: one member may have stopped after it was asked, and another one have started after that.
func (w *quorumWatch) lookForMajority(ctx context.Context) {
	var answers map[string]bool
	for range 2 {
		var err error
		answers, err = w.cluster.askVoters(ctx, clientv3.WithSerializable())
		if err != nil || isMajority(answers) {
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.minorities = append(w.minorities, fmt.Sprintf("%s: %v", time.Now().Format(time.TimeOnly), answers))
}

// problems returns the observed states that a control plane of three members must never have.
func (w *quorumWatch) problems() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []string
	if w.fewest < 3 || w.most > 4 {
		found = append(found, fmt.Sprintf("there were %d to %d voters", w.fewest, w.most))
	}
	if count := len(w.minorities); count > 0 {
		found = append(found, fmt.Sprintf("no majority of the voters answered, at %d looks: %q", count,
			w.minorities[:min(count, 5)]))
	}
	if w.unlisted > longestOutage {
		found = append(found, fmt.Sprintf("the members of etcd could not be listed for %s", w.unlisted))
	}
	return found
}

// isMajority returns whether more than half of the voters answer.
func isMajority(answers map[string]bool) bool {
	answering := 0
	for _, answered := range answers {
		if answered {
			answering++
		}
	}
	return 2*answering > len(answers)
}

// askVoters returns the voters, and whether they answer. All are asked at once. The options are those of the list.
func (c *etcdCluster) askVoters(ctx context.Context, options ...clientv3.OpOption) (map[string]bool, error) {
	voters, err := c.listVoters(ctx, options)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var requests sync.WaitGroup
	answers := map[string]bool{}
	for name, voter := range voters {
		requests.Go(func() {
			answered := len(voter.ClientURLs) > 0 && c.ask(ctx, voter.ClientURLs[0]) == nil
			mu.Lock()
			defer mu.Unlock()
			answers[name] = answered
		})
	}
	requests.Wait()
	after, err := c.listVoters(ctx, options)
	if err == nil && !slices.Equal(slices.Sorted(maps.Keys(voters)), slices.Sorted(maps.Keys(after))) {
		err = errOtherVoters
	}
	return answers, err
}

func (c *etcdCluster) listVoters(ctx context.Context,
	options []clientv3.OpOption) (map[string]*etcdserverpb.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found, err := c.members(ctx, options...)
	maps.DeleteFunc(found, func(_ string, m *etcdserverpb.Member) bool { return m.IsLearner })
	return found, err
}

// ask sends a request that a member answers without the others. A dead member refuses the connection at once; the
// timeout allows for a busy machine.
func (c *etcdCluster) ask(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health?serializable=true", nil)
	if err != nil {
		return err
	}
	answer, err := c.asker.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}
