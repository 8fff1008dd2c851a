package manager_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A writingLoad writes one key after the other, each until it is acknowledged, and reads it back through the quorum. Beside
// that it watches how many voters there are.
type writingLoad struct {
	cluster *etcdCluster
	stop    func()

	mu            sync.Mutex
	written       int
	longest       time.Duration // without an acknowledged write
	fewest, most  int           // voters
	disagreements []string
}

func (s *scene) startLoad(t *testing.T) *writingLoad {
	t.Helper()
	l := &writingLoad{cluster: s.etcdCluster, fewest: 3, most: 3}
	client := s.connect()
	stopWrites := s.run(t, func(ctx context.Context) error {
		defer client.Close()
		for ctx.Err() == nil {
			l.write(ctx, client)
			pause(ctx, 20*time.Millisecond) // beside the load, there are other tests
		}
		return nil
	})
	stopLooks := s.run(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			l.count(ctx)
			pause(ctx, 100*time.Millisecond)
		}
		return nil
	})
	l.stop = func() {
		stopWrites()
		stopLooks()
	}
	return l
}

func loadKey(number int) string { return fmt.Sprintf("load/%08d", number) }

// write writes the next key, and reads it.
func (l *writingLoad) write(ctx context.Context, client *clientv3.Client) {
	begun, value := time.Now(), fmt.Sprint(l.written)
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
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written++
	l.longest = max(l.longest, time.Since(begun))
}

func (l *writingLoad) count(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found, err := l.cluster.members(ctx)
	if err != nil {
		return
	}
	voters := 0
	for _, member := range found {
		if !member.IsLearner {
			voters++
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fewest, l.most = min(l.fewest, voters), max(l.most, voters)
}

// check ends the load, and checks that each acknowledged write is there.
func (l *writingLoad) check(t *testing.T) {
	t.Helper()
	l.stop()
	found, err := l.cluster.client.Get(t.Context(), "load/", clientv3.WithPrefix(), clientv3.WithLimit(0))
	if err != nil {
		t.Fatal(err)
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
	t.Logf("%d writes were acknowledged, the slowest after %s; there were %d to %d voters", l.written, l.longest.Round(time.Millisecond), l.fewest, l.most)
	if len(l.disagreements) > 0 {
		t.Errorf("reads did not have what was written: %v", l.disagreements)
	}
	if l.written == 0 || l.longest > patience {
		t.Errorf("%d writes, and the slowest took %s", l.written, l.longest)
	}
}
