package operator_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox"
)

var (
	soakUpdates   = flag.Int("soak", 4, "how many updates the soak has")
	soakOperators = flag.Int("soak-operators", 20, "how many ClusterOperators there are beside those of the release")
	soakSeed      = flag.Uint64("soak-seed", 0, "the seed of the accidents; 0 takes the time")
)

// goods are the objects of the soak's releases; goodsOf has the objects that each release deletes.
var (
	goods   = []string{"apples", "pears", "plums", "figs"}
	goodsOf = map[string]string{
		"1.0.0": "",
		"1.0.1": "apples",
		"1.1.0": "pears",
		"1.1.1": "apples pears",
		"1.2.0": "figs",
	}
)

// assortment returns a release of the soak.
func assortment(version string) string {
	var files strings.Builder
	files.WriteString(shop + till)
	for i, name := range goods {
		annotations := ""
		if strings.Contains(goodsOf[version], name) {
			annotations = `, annotations: {release.openshift.io/delete: "true"}`
		}
		fmt.Fprintf(&files, "-- 0000_3%d_%s_10_map.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: "+
			"%[2]s, namespace: shop%s}, data: {version: VERSION}}\n", i, name, annotations)
	}
	return files.String()
}

// A soak is many updates between releases, with accidents in the middle.
type soak struct {
	*stage
	random   *rand.Rand
	images   map[string]string
	versions []string // requested versions, newest first
	running  sync.WaitGroup

	mu     sync.Mutex
	writes int // remaining writes until the operator is killed; negative for no kill
	lives  int // operators that were started
}

// TestSoak goes back and forth among releases with tombstones, while objects drift, finalizers hold deletes, operators
// are killed and lose their lock, and the API server is restarted. Nothing is lost, and nothing leaks. It runs for half
// a minute; -args -soak 50 -soak-operators 1000 runs it longer.
func TestSoak(t *testing.T) { // not in parallel: it measures the process
	s := newSoak(t)
	ctx, end := context.WithCancel(t.Context())
	s.running.Go(func() { s.live(ctx, s.isFatal, s.skew) })
	s.report("till", "1.0.0")
	s.until("installed", isAt("1.0.0"))
	s.addOperators()
	before := s.measure()
	for range *soakUpdates {
		s.updateOnce()
	}
	s.calm()
	s.until("it is calm", isAt(s.versions[0]))
	after := s.measure()
	end()
	s.running.Wait()
	t.Logf("%d updates by %d operators\nbefore: %s\nafter:  %s", *soakUpdates, s.lives, before, after)
	s.checkHistory()
	if after.goroutines > before.goroutines+20 || after.files > before.files+20 || after.watches > before.watches+5 {
		t.Error("something leaks")
	}
	if after.heap > before.heap+20<<20 {
		t.Error("memory leaks")
	}
}

func newSoak(t *testing.T) *soak {
	seed := *soakSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("its accidents are those of -soak-seed %d", seed)
	s := &soak{
		stage:    newStage(t),
		random:   rand.New(rand.NewPCG(seed, seed)),
		images:   map[string]string{},
		versions: []string{"1.0.0"},
		writes:   -1,
	}
	s.prepare("1.0.0", assortment("1.0.0"))
	s.options.LockDuration = 15 * time.Second
	for version := range goodsOf {
		s.images[version] = s.push(version, assortment(version))
	}
	return s
}

// isFatal returns whether a write kills the operator.
func (s *soak) isFatal(*http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes--
	return s.writes == 0
}

// killAfter kills the operator after some more writes.
func (s *soak) killAfter(writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = writes
}

// skew returns by how much the clock of the next operator's API server is ahead: it jumps by up to an hour, in both
// directions.
func (s *soak) skew() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lives++
	return time.Duration(s.lives%3-1) * time.Hour
}

// calm lets the operator live.
func (s *soak) calm() { s.killAfter(-1) }

// updateOnce updates to another release during an accident, and checks the objects.
func (s *soak) updateOnce() {
	s.t.Helper()
	version := s.versions[0]
	for version == s.versions[0] {
		version = [...]string{"1.0.0", "1.0.1", "1.1.0", "1.1.1", "1.2.0"}[s.random.IntN(5)]
	}
	s.versions = slices.Insert(s.versions, 0, version)
	held := s.holdOne(version)
	s.killAfter(1 + s.random.IntN(25))
	// releases don't go back unless they are forced
	s.update(s.images[version], func(u *configv1.Update) { u.Force = true })
	s.accident()
	s.report("till", version)
	s.until("updated to "+version, isAt(version))
	s.untilSettings(version)
	if held != "" {
		s.await("the finalizer holds "+held, func() bool {
			found := s.find(held)
			return found != nil && found.DeletionTimestamp != nil
		})
		s.hold(held, "null")
	}
	for _, name := range goods {
		isDeleted := strings.Contains(goodsOf[version], name)
		s.await(fmt.Sprintf("%s is as %s has it", name, version), func() bool {
			found := s.find(name)
			return isDeleted && found == nil ||
				!isDeleted && found != nil && found.Data["version"] == version && found.DeletionTimestamp == nil
		})
	}
}

// holdOne puts a finalizer on an object that the next version deletes, if any exists.
func (s *soak) holdOne(version string) string {
	for _, name := range goods {
		if found := s.find(name); found != nil && found.DeletionTimestamp == nil &&
			strings.Contains(goodsOf[version], name) {
			s.hold(name, `["example.com/hold"]`)
			return name
		}
	}
	return ""
}

// find returns a ConfigMap of the releases, or nil.
func (s *soak) find(name string) *corev1.ConfigMap {
	var found corev1.ConfigMap
	err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &found)
	if apierrors.IsNotFound(err) {
		return nil
	}
	s.must(err)
	return &found
}

// accident does one of the things that happen to clusters.
func (s *soak) accident() {
	s.t.Helper()
	switch s.random.IntN(4) {
	case 0:
		s.must(s.sandbox.Kill(sandbox.APIServer))
		s.must(s.sandbox.Resume(s.t.Context(), sandbox.APIServer))
	case 1:
		s.must(client.IgnoreNotFound(s.client.Delete(s.t.Context(), s.settings())))
	case 2:
		s.must(client.IgnoreNotFound(s.editSettings("of someone else")))
	}
}

// checkHistory compares the history with the requests.
func (s *soak) checkHistory() {
	s.t.Helper()
	var versions []string
	for _, entry := range s.version().Status.History {
		if entry.State != configv1.CompletedUpdate {
			s.t.Errorf("%s was not completed", entry.Version)
		}
		versions = append(versions, entry.Version)
	}
	if !slices.Equal(versions, s.versions[:min(len(s.versions), len(versions))]) ||
		len(versions) < min(len(s.versions), 100) {
		s.t.Errorf("the history is %q, want %q", versions, s.versions)
	}
}

// soakFigures are the resources that an operator uses.
type soakFigures struct{ heap, goroutines, files, watches int }

func (f soakFigures) String() string {
	return fmt.Sprintf("%.1f MB of heap, %d goroutines, %d open files, %d watches of ClusterVersions",
		float64(f.heap)/1e6, f.goroutines, f.files, f.watches)
}

// measure returns the figures of this process once they are steady.
func (s *soak) measure() soakFigures {
	s.t.Helper()
	var last soakFigures
	err := wait.PollUntilContextTimeout(s.t.Context(), time.Second, patience, true,
		func(ctx context.Context) (bool, error) {
			runtime.GC()
			var memory runtime.MemStats
			runtime.ReadMemStats(&memory)
			files, err := os.ReadDir("/proc/self/fd")
			now := soakFigures{heap: int(memory.HeapAlloc), goroutines: runtime.NumGoroutine(), files: len(files)}
			isSteady := now.goroutines == last.goroutines && now.files == last.files
			last = now
			return isSteady, err
		})
	s.must(err)
	last.watches = s.watches()
	return last
}

// watches returns how many watches of ClusterVersions the API server serves.
func (s *soak) watches() int {
	s.t.Helper()
	text, err := kubernetes.NewForConfigOrDie(s.sandbox.Config).RESTClient().Get().AbsPath("/metrics").DoRaw(
		s.t.Context(),
	)
	s.must(err)
	count := 0.0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "apiserver_longrunning_requests{") &&
			strings.Contains(line, `resource="clusterversions"`) && strings.Contains(line, `verb="WATCH"`) {
			_, value, _ := strings.Cut(line, "} ")
			number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			s.must(err)
			count += number
		}
	}
	return int(count)
}

// addOperators makes ClusterOperators that are in no release.
func (s *soak) addOperators() {
	s.t.Helper()
	for i := range *soakOperators {
		operator := &configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("other-%d", i)}}
		s.must(s.client.Create(s.t.Context(), operator))
		operator.Status.Conditions = []configv1.ClusterOperatorStatusCondition{
			condition(configv1.OperatorAvailable, configv1.ConditionTrue),
		}
		s.must(s.client.Status().Update(s.t.Context(), operator))
	}
}
