package manager_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A writingLoad writes one key after the other, each until it is acknowledged, and reads it back through the quorum.
// Beside that it watches the voters.
type writingLoad struct {
	cluster *etcdCluster
	watch   *quorumWatch
	stop    func()

	mu            sync.Mutex
	written       int
	longest       time.Duration // longest time until a write was acknowledged and read
	disagreements []string
}

func (s *scene) startLoad(t *testing.T) *writingLoad {
	t.Helper()
	l := &writingLoad{cluster: s.etcdCluster, watch: newQuorumWatch(s.etcdCluster)}
	client := s.connect()
	t.Cleanup(func() { _ = client.Close() })
	again := func(pauseTime time.Duration, do func(context.Context)) (stop func()) {
		return s.run(t, func(ctx context.Context) error {
			for ctx.Err() == nil {
				do(ctx)
				pause(ctx, pauseTime) // beside the load, there are other tests
			}
			return nil
		})
	}
	stops := []func(){
		again(20*time.Millisecond, func(ctx context.Context) { l.write(ctx, client) }),
		again(100*time.Millisecond, l.watch.count),
		again(100*time.Millisecond, l.watch.lookForMajority),
	}
	l.stop = func() {
		for _, stop := range stops {
			stop()
		}
	}
	return l
}

func loadKey(number int) string { return fmt.Sprintf("load/%08d", number) }

// write writes the next key, and reads it.
func (l *writingLoad) write(ctx context.Context, client *clientv3.Client) {
	begun, value := time.Now(), fmt.Sprint(l.written)
	defer func() { // also for a write without an acknowledgement
		l.mu.Lock()
		defer l.mu.Unlock()
		l.longest = max(l.longest, time.Since(begun))
	}()
	try := func(do func(context.Context) error) {
		for ctx.Err() == nil {
			short, cancel := context.WithTimeout(ctx, 3*time.Second)
			err := do(short)
			cancel()
			if err == nil {
				return
			}
		}
	}
	try(func(ctx context.Context) error {
		_, err := client.Put(ctx, loadKey(l.written), value)
		return err
	})
	if ctx.Err() != nil { // the last one may or may not be there
		return
	}
	try(func(ctx context.Context) error {
		found, err := client.Get(ctx, loadKey(l.written))
		if err == nil && (len(found.Kvs) != 1 || string(found.Kvs[0].Value) != value) {
			l.mu.Lock()
			l.disagreements = append(l.disagreements, loadKey(l.written))
			l.mu.Unlock()
		}
		return err
	})
	if ctx.Err() != nil { // it was not read
		return
	}
	l.mu.Lock()
	l.written++
	l.mu.Unlock()
}

// problems returns the problems of the writes, and of the voters, so far.
func (l *writingLoad) problems() []string {
	found := l.watch.problems()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.disagreements) > 0 {
		found = append(found, fmt.Sprintf("reads did not return the written values: %v", l.disagreements))
	}
	if l.written == 0 || l.longest > longestOutage {
		found = append(found, fmt.Sprintf("%d writes, and the slowest took %s", l.written, l.longest))
	}
	return found
}

// check ends the load, and checks that each acknowledged write is stored, and that etcd has never lost its quorum.
func (l *writingLoad) check(t *testing.T) {
	t.Helper()
	l.stop()
	ctx, cancel := context.WithTimeout(t.Context(), longestOutage)
	defer cancel()
	found, err := l.cluster.client.Get(ctx, "load/", clientv3.WithPrefix(), clientv3.WithLimit(0))
	if err != nil {
		t.Fatalf("cannot read the written values: %v; earlier problems: %q", err, l.problems())
	}
	there := map[string]string{}
	for _, pair := range found.Kvs {
		there[string(pair.Key)] = string(pair.Value)
	}
	for number := range l.written {
		if there[loadKey(number)] != fmt.Sprint(number) {
			t.Errorf("write %d was acknowledged, and is lost", number)
		}
	}
	t.Logf("%d writes were acknowledged, the slowest after %s; there were %d to %d voters", l.written,
		l.longest.Round(time.Millisecond),
		l.watch.fewest, l.watch.most)
	for _, problem := range l.problems() {
		t.Error(problem)
	}
}
