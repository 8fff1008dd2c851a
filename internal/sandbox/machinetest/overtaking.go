package machinetest

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// otherMachines is the number of machines that are deleted before the hook of an OvertakingMachine is removed.
const otherMachines = 12

// An OvertakingMachine is a deleted machine that a hook holds, and functions of its API for other machines.
type OvertakingMachine struct {
	Machine client.Object // has the hook
	Status  string        // a merge patch of the status that names a node
	IsHeld  func(client.Object) bool
	Unhook  string // a merge patch that removes the hook
	// New returns a machine of that name without a hook, which one reconciliation deletes.
	New func(name string) client.Object
	// SetUp adds a controller with one worker.
	SetUp func(ctrl.Manager) error
}

// ExpectOvertaking deletes many machines while the only worker is busy with the first machine, and removes the hook. It
// expects that the machine that had the hook is reconciled before most of the others.
func (s *SharedSandbox) ExpectOvertaking(t testing.TB, m OvertakingMachine) {
	t.Helper()
	key, log := client.ObjectKeyFromObject(m.Machine), newReadLog("other-0")
	f := &Fixture{Client: s.Client(t), TB: t, Namespace: key.Namespace}
	var cached client.Reader
	s.ManageIn(t, key.Namespace, sandboxtest.Before(s.Sandbox(t).Config, log.look), func(mgr ctrl.Manager) error {
		cached = mgr.GetClient()
		return m.SetUp(mgr)
	})
	others := make([]client.Object, otherMachines)
	for i := range others {
		others[i] = m.New(fmt.Sprintf("other-%d", i))
	}
	f.createMachines(append(others, m.Machine))
	f.MustPatchStatus(m.Machine, "%s", m.Status)
	f.MustDelete(m.Machine)
	Await(t, f, m.Machine, key, m.IsHeld)

	defer log.open()
	f.MustDelete(others[0])
	log.awaitHeld(t)
	for _, machine := range others[1:] {
		f.MustDelete(machine)
	}
	f.MustPatch(m.Machine, "%s", m.Unhook)
	Await(t, cached, m.Machine, key, func(machine client.Object) bool { return !m.IsHeld(machine) })
	log.open()
	f.AwaitGone(m.Machine)
	if before := log.before(key.Name); before > otherMachines/2 {
		t.Errorf("%d of %d machines that were deleted later went before the one whose hook was removed", before,
			otherMachines)
	}
}

// createMachines creates machines, and waits until the controller has added its finalizers.
func (f *Fixture) createMachines(machines []client.Object) {
	f.Helper()
	f.MustCreate(machines...)
	for _, machine := range machines {
		Await(f, f, machine, client.ObjectKeyFromObject(machine), func(m client.Object) bool {
			return len(m.GetFinalizers()) > 0
		})
	}
}

// A readLog records the machines that a controller reads, in their order. Each reconciliation of a terminating machine
// begins with a read. The reads of one machine are held until the log is opened.
type readLog struct {
	holds   string
	isHeld  chan struct{} // closed when the machine is read
	held    func()
	mayPass chan struct{}
	open    func()

	mu    sync.Mutex
	names []string
}

func newReadLog(holds string) *readLog {
	l := &readLog{holds: holds, isHeld: make(chan struct{}), mayPass: make(chan struct{})}
	l.held, l.open = sync.OnceFunc(func() { close(l.isHeld) }), sync.OnceFunc(func() { close(l.mayPass) })
	return l
}

// awaitHeld waits until the controller reads the machine whose reads are held.
func (l *readLog) awaitHeld(t testing.TB) {
	t.Helper()
	select {
	case <-l.isHeld:
	case <-time.After(patience):
		t.Fatalf("the controller does not read %s", l.holds)
	}
}

func (l *readLog) look(request *http.Request) error {
	folder, name := path.Split(request.URL.Path)
	if request.Method == http.MethodGet && strings.HasSuffix(folder, "/machines/") {
		l.mu.Lock()
		l.names = append(l.names, name)
		l.mu.Unlock()
		if name == l.holds {
			l.held()
			<-l.mayPass
		}
	}
	return nil
}

// before returns the number of other machines that were read before the last read of a machine.
func (l *readLog) before(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	others := map[string]bool{}
	for i, other := range slices.Backward(l.names) {
		if other != name {
			continue
		}
		for _, other := range l.names[:i] {
			others[other] = true
		}
		delete(others, name)
		break
	}
	return len(others)
}
