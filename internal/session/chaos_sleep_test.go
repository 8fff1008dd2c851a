package session_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session"
)

// A sleeper is an applier in a separate process that stops at one of its writes, as on a closed laptop
// or a swapping node.
type sleeper struct {
	process *exec.Cmd
	output  *strings.Builder
	stopped chan struct{} // closed when it is stopped
	ended   chan error    // the result of its process
}

// sleepIn starts an update, and stops it when the API server gets its write number k, which is done all
// the same; or, if k is 0, when its release is kept in place.
func sleepIn(t *testing.T, m mortal, k int) *sleeper {
	t.Helper()
	s := &sleeper{output: &strings.Builder{}, stopped: make(chan struct{})}
	started := make(chan struct{})
	var count atomic.Int64
	address := proxy{
		arrived: func(request *http.Request) bool {
			if isWrite(request) && int(count.Add(1)) == k {
				<-started
				s.stop()
			}
			return true
		},
		answered: func(*http.Response) bool { return true },
	}.start(t)
	m.Server, m.Lock = address, mortalLock
	job, _ := json.Marshal(m)
	s.process = exec.CommandContext(t.Context(), os.Args[0])
	s.process.Env = append(os.Environ(), mortalEnv+"="+string(job))
	s.process.Stderr = s.output
	stdout, err := s.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	s.ended = make(chan error, 1)
	close(started)
	if k == 0 {
		if _, err := stdout.Read(make([]byte, 1)); err != nil {
			t.Fatalf("the release is not kept in place: %v\n%s", err, s.output)
		}
		s.stop()
	}
	go func() { s.ended <- s.process.Wait() }()
	select {
	case <-s.stopped:
	case err := <-s.ended:
		t.Fatalf("the sleeper ended before it was stopped: %v\n%s", err, s.output)
	}
	return s
}

func (s *sleeper) stop() {
	_ = s.process.Process.Signal(syscall.SIGSTOP)
	close(s.stopped)
}

// wake lets it go on, and returns whether it reports that it has done its work.
func (s *sleeper) wake(t *testing.T) (isDone bool) {
	t.Helper()
	if err := s.process.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	return <-s.ended == nil
}

// versioned returns ConfigMaps that have their version as data, in four levels. Version 1.1.0 deletes the first one;
// the other versions have it.
func versioned(version string, count int) string {
	var text strings.Builder
	text.WriteString(
		"\n-- 0000_10_base_10_namespace.yaml --\n{apiVersion: v1, kind: Namespace, metadata: {name: NS}}\n",
	)
	annotations := ""
	if version == "1.1.0" {
		annotations = `, annotations: {release.openshift.io/delete: "true"}`
	}
	for i := range count {
		fmt.Fprintf(&text, "-- 0000_%d_part-%03d_10_part.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: "+
			"part-%03d, namespace: NS%s}, data: {version: %s}}\n", 20+i%4, i, i, annotations, version)
		annotations = ""
	}
	return text.String()
}

// A taker is what another applier does while the sleeper is stopped. It takes the lock over, and leaves
// the ConfigMaps at a version.
type taker struct {
	name string
	do   func(t *testing.T, release string, o session.Options) (leaves string)
}

func takers() []taker {
	begin := func(t *testing.T, release string, o session.Options, passes int64) *stopper {
		s := newStopper(passes)
		c, newer := connectAs(t, release+"-taker", s.look), load(t, release, "1.1.1", versioned("1.1.1", sleeperParts))
		ended := make(chan *session.Outcome, 1)
		go func() { ended <- session.Run(t.Context(), c, newer, o) }()
		select {
		case <-s.kept:
		case outcome := <-ended:
			t.Fatal("the taker ended before it was stopped:", outcome.Err)
		}
		return s
	}
	return []taker{
		{"has ended", func(t *testing.T, release string, o session.Options) string {
			outcome := session.Run(t.Context(), connectAs(t, release+"-taker"),
				load(t, release, "1.1.1", versioned("1.1.1", sleeperParts)), o)
			if outcome.Err != nil {
				t.Fatal(outcome.Err)
			}
			return "1.1.1"
		}},
		{"is at work", func(t *testing.T, release string, o session.Options) string {
			s := begin(t, release, o, sleeperParts/2)
			t.Cleanup(func() { close(s.open) })
			return ""
		}},
		{"has crashed", func(t *testing.T, release string, o session.Options) string {
			o.Lock.Duration = mortalLock
			s := begin(t, release, o, sleeperParts/2) // the process never writes again, not even its Lease
			t.Cleanup(func() { close(s.open) })
			return ""
		}},
	}
}

// sleeperParts are the ConfigMaps of a release that a sleeper updates.
const sleeperParts = 20

// TestASleeperDoesNotUndoWhatOthersDid stops an update for longer than its lock lasts, at many moments.
// Meanwhile another applier takes the lock. When the sleeper wakes up, it undoes no changes of the
// other applier, and does not report that its release is applied.
func TestASleeperDoesNotUndoWhatOthersDid(t *testing.T) {
	var several sync.WaitGroup // not limited by -parallel: the subtests mostly wait
	for _, taker := range takers() {
		for k := 1; k <= sleeperParts+1; k += 5 {
			several.Go(func() {
				t.Run(fmt.Sprintf("who takes its lock %s, at write %d", taker.name, k), func(t *testing.T) {
					takeFromSleeper(t, taker, k)
				})
			})
		}
	}
	several.Wait()
}

// takeFromSleeper stops an update at its write number k until a taker has its lock.
func takeFromSleeper(t *testing.T, taker taker, k int) {
	release := fmt.Sprintf("asleep-%s-%d", strings.ReplaceAll(taker.name, " ", "-"), k)
	mustRun(t, connectAs(t, release+"-before"), load(t, release, "1.0.0", versioned("1.0.0", sleeperParts)))
	s := sleepIn(t, mortal{Release: release, Text: versioned("1.1.0", sleeperParts)}, k)
	leaves := taker.do(t, release, waitsForLock())
	taken, written := takenParts(t, release), len(writesBy(t, release))
	if s.wake(t) {
		t.Errorf("the sleeper reports that its release is applied:\n%s", s.output)
	}
	after := takenParts(t, release)
	for name, version := range taken {
		if after[name] != version {
			t.Errorf("the sleeper has changed %s after the other applier wrote it", name)
		}
	}
	if late := writesBy(t, release)[written:]; len(late) > inFlight {
		t.Errorf("the sleeper wrote more than the requests in flight: %v", late)
	}
	if leaves != "" {
		checkVersions(t, release, leaves, sleeperParts)
	}
}

// TestAKeeperThatSleptRepairsNothing does the same with a release of many objects, which a process keeps in place.
func TestAKeeperThatSleptRepairsNothing(t *testing.T) {
	const release, many = "asleep-keeps", 300
	s := sleepIn(t, mortal{Release: release, Text: versioned("1.1.0", many), Keeps: true}, 0)
	outcome := session.Run(t.Context(), connectAs(t, release+"-taker"),
		load(t, release, "1.1.1", versioned("1.1.1", many)), waitsForLock())
	if outcome.Err != nil {
		t.Fatal(outcome.Err)
	}
	if s.wake(t) {
		t.Errorf("the sleeper ends without an error:\n%s", s.output)
	}
	checkVersions(t, release, "1.1.1", many)
	hasOutput := func(words string) bool { return strings.Contains(s.output.String(), words) }
	// The second message is reported if its watches end before it renews the lock.
	if !hasOutput("freed it") && !hasOutput("something else was applied") {
		t.Errorf("the output has no reason for the end: %s", s.output)
	}
}

// TestASleeperKeepsALockThatNoOtherTakes stops an update for longer and for shorter than its lock lasts, and no other
// takes the lock meanwhile.
func TestASleeperKeepsALockThatNoOtherTakes(t *testing.T) {
	for name, sleeps := range map[string]time.Duration{"longer": mortalLock + time.Second, "shorter": mortalLock / 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			release := "asleep-alone-" + name
			mustRun(t, connectAs(t, release+"-before"), load(t, release, "1.0.0", versioned("1.0.0", sleeperParts)))
			s := sleepIn(t, mortal{Release: release, Text: versioned("1.1.0", sleeperParts)}, sleeperParts/2)
			asleep, end := context.WithTimeout(t.Context(), sleeps)
			defer end()
			<-asleep.Done()
			isDone := s.wake(t)
			if newest := history(t, connectAs(t, "looker"), release); isDone != strings.HasPrefix(newest,
				"Completed update 1.1.0") {
				t.Errorf("the sleeper is done: %t, but the record has %s\n%s", isDone, newest, s.output)
			}
			if !isDone && !strings.Contains(s.output.String(), lock.ErrLost.Message) {
				t.Errorf("the sleeper ended, and not because of its lock:\n%s", s.output)
			}
		})
	}
}

func waitsForLock() session.Options {
	o := options()
	o.Lock = lock.Options{Wait: true, Duration: time.Minute}
	return o
}

// inFlight limits the writes that a stopped update may have sent, or may be about to send.
const inFlight = 16

// takenParts are the resource versions of those ConfigMaps that the taker has written.
func takenParts(t *testing.T, release string) map[string]string {
	t.Helper()
	parts, err := test.Client(t).CoreV1().ConfigMaps(release).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	taken := map[string]string{}
	for _, part := range parts.Items {
		if part.Data["version"] == "1.1.1" {
			taken[part.Name] = part.ResourceVersion
		}
	}
	return taken
}

// writesBy are the writes of a sleeper that were done.
func writesBy(t *testing.T, release string) []write {
	t.Helper()
	return audited(t, func(w write) bool {
		return w.Agent == release && w.Object.Resource != "leases" && w.Status.Code < http.StatusMultipleChoices
	})
}

// checkVersions checks whether all ConfigMaps of a release have a version.
func checkVersions(t *testing.T, release, version string, count int) {
	t.Helper()
	parts, err := test.Client(t).CoreV1().ConfigMaps(release).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, part := range parts.Items {
		if !strings.HasPrefix(part.Name, "part-") {
			continue
		}
		found++
		if part.Data["version"] != version {
			t.Errorf("%s is of %s, want %s", part.Name, part.Data["version"], version)
		}
	}
	if found != count {
		t.Errorf("there are %d objects, want %d", found, count)
	}
}
