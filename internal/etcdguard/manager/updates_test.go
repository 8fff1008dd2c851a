package manager_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
)

// The annotations, as a user reads them.
const (
	requested = "machine.runlevel.dev/update-requested"
	allowed   = "machine.runlevel.dev/update-allowed"
	held      = "machine.runlevel.dev/update-held"
)

// TestUpdatesInPlace asks for updates in place, as the control plane of a cluster does.
func TestUpdatesInPlace(t *testing.T) {
	s := newClusterAPIScene(t)
	t.Run("all is well, and an older request has no answer", s.testAllowedUpdate)
	t.Run("one update at a time", s.testUpdatesInTurn)
	t.Run("a member does not answer", s.testUpdateWithoutMember)
	t.Run("a machine that changes meanwhile", s.testChangedMachine)
	t.Run("a member lost meanwhile", s.testLostMember)
}

func (s *scene) testAllowedUpdate(t *testing.T) {
	s.annotate(t, 1, requested, time.Now().Add(-2*time.Minute).UTC().Format(time.RFC3339))
	s.awaitUpdateAllowed(t, 2)
	s.eventually("an event reports the permission", func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := s.client.List(ctx, &list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		if !slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Name == "m2" && e.Reason == "UpdateAllowed"
		}) {
			return fmt.Errorf("%d other events", len(list.Items))
		}
		return nil
	})
	if m := s.clusterAPIMachine(t, 1); m.Annotations[allowed] != "" || m.Annotations[held] != "" {
		t.Errorf("a request of two minutes ago is answered: %q", m.Annotations)
	}
	s.dropRequest(t, 1)
	s.dropRequest(t, 2)
}

// testUpdatesInTurn asks for an update of each machine.
func (s *scene) testUpdatesInTurn(t *testing.T) {
	s.awaitUpdateAllowed(t, 1)
	s.awaitUpdateHeld(t, 2, "machine "+s.namespace+"/m1 may be updated first")
	s.annotate(t, 1, clusterv1.UpdateInProgressAnnotation, "")
	s.dropRequest(t, 1)
	s.awaitUpdateHeld(t, 2, "machine "+s.namespace+"/m1 is being updated")
	s.awaitUpdateHeld(t, 3, "machine "+s.namespace+"/m1 is being updated")
	s.dropRequest(t, 3)
	s.annotate(t, 1, clusterv1.UpdateInProgressAnnotation, nil)
	s.awaitUpdateAllowed(t, 2)
	s.dropRequest(t, 2)
}

func (s *scene) testUpdateWithoutMember(t *testing.T) {
	s.kill(3)
	s.awaitUpdateHeld(t, 1, "these voting members of etcd do not answer: etcd-3 (")
	s.awaitUpdateHeld(t, 3, "these voting members of etcd do not answer: etcd-3 (")
	s.dropRequest(t, 3)
	s.eventually("the member starts again", func(ctx context.Context) error { return s.Join(ctx, 3) })
	s.awaitUpdateAllowed(t, 1)
	s.dropRequest(t, 1)
}

// testChangedMachine makes the control plane withdraw its request just before the permission for it is written.
func (s *scene) testChangedMachine(t *testing.T) {
	await := s.atFirst("permit update of m1", func() { s.dropRequest(t, 1) })
	s.annotate(t, 1, requested, time.Now().UTC().Format(time.RFC3339))
	await(t)
	s.awaitUpdateAllowed(t, 2) // another pass
	if m := s.clusterAPIMachine(t, 1); m.Annotations[allowed] != "" {
		t.Errorf("a request that was withdrawn is permitted: %q", m.Annotations)
	}
	s.dropRequest(t, 2)
}

// testLostMember makes a member stop when a permission was decided, and not written yet.
func (s *scene) testLostMember(t *testing.T) {
	before := s.gate.matching("permit update")
	await := s.atFirst("read m1", func() { s.kill(3) })
	s.annotate(t, 1, requested, time.Now().UTC().Format(time.RFC3339))
	await(t)
	s.awaitUpdateHeld(t, 1, "these voting members of etcd do not answer: etcd-3 (")
	if now := s.gate.matching("permit update"); len(now) != len(before) {
		t.Errorf("the update was permitted: %q", now)
	}
}

// atFirst has something happen before a request of the guard arrives for the first time.
func (s *scene) atFirst(request string, do func()) (await func(*testing.T)) {
	happened := make(chan struct{})
	first := sync.OnceFunc(func() {
		do()
		close(happened)
	})
	s.gate.set(func(arriving string) bool {
		if arriving == request {
			first()
		}
		return false
	}, nil)
	return func(t *testing.T) {
		t.Helper()
		select {
		case <-happened:
		case <-time.After(patience):
			t.Fatalf("the guard never makes the request: %s", request)
		}
	}
}

// awaitUpdateAllowed asks for an update, again and again like a control plane, until it is permitted.
func (s *scene) awaitUpdateAllowed(t *testing.T, number int) {
	t.Helper()
	s.awaitAnswer(t, number, "is permitted", func(m *clusterv1.Machine) bool {
		_, isHeld := m.Annotations[held]
		return m.Annotations[allowed] == m.Annotations[requested] && !isHeld
	})
}

// awaitUpdateHeld asks for an update until the guard returns why it is not permitted.
func (s *scene) awaitUpdateHeld(t *testing.T, number int, reason string) {
	t.Helper()
	m := s.awaitAnswer(t, number, "is held: "+reason, func(m *clusterv1.Machine) bool {
		return strings.HasPrefix(m.Annotations[held], reason)
	})
	if m.Annotations[allowed] == m.Annotations[requested] {
		t.Errorf("the update is permitted: %q", m.Annotations)
	}
}

func (s *scene) awaitAnswer(t *testing.T, number int, answer string,
	isMeant func(*clusterv1.Machine) bool) (m *clusterv1.Machine) {
	t.Helper()
	s.eventually(fmt.Sprintf("the update of machine %d %s", number, answer), func(context.Context) error {
		if m = s.clusterAPIMachine(t, number); !rolloutrules.IsRequested(m, time.Now()) {
			m = s.annotate(t, number, requested, time.Now().UTC().Format(time.RFC3339))
		}
		if !isMeant(m) {
			return fmt.Errorf("it has the annotations %q", m.Annotations)
		}
		return nil
	})
	return m
}

func (s *scene) clusterAPIMachine(t *testing.T, number int) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: fmt.Sprint("m", number)}}
	if err := s.client.Get(s.Context(), client.ObjectKeyFromObject(m), m); err != nil {
		t.Error(err)
	}
	return m
}

// annotate sets an annotation of a machine, or removes it if the value is nil.
func (s *scene) annotate(t *testing.T, number int, key string, value any) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: fmt.Sprint("m", number)}}
	quoted := "null"
	if value != nil {
		quoted = fmt.Sprintf("%q", value)
	}
	if err := s.patch(s.Context(), m, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, quoted)); err != nil {
		t.Error(err)
	}
	return m
}

// dropRequest withdraws a request, with its answer.
func (s *scene) dropRequest(t *testing.T, number int) {
	for _, key := range []string{requested, allowed, held} {
		s.annotate(t, number, key, nil)
	}
}
