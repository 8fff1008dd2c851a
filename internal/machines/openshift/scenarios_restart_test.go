package openshift_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A deletion has at least the first number of writes. The second is more than it needs, so that the last restarts come
// after the end.
const leastWrites, writesOfADeletion = 7, 9

// TestRestartBetweenWrites kills the controller at each of its writes to a machine being deleted, before the write
// arrives and after. Another controller continues, and must neither repeat writes nor change their order.
func TestRestartBetweenWrites(t *testing.T) {
	for index := range writesOfADeletion {
		for _, isLate := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d arrives %t", index+1, isLate), func(t *testing.T) {
				restartAt(t, index+1, isLate)
			})
		}
	}
}

func restartAt(t *testing.T, index int, isLate bool) {
	s := newScenario(t)
	stop := s.startWith(quick)
	node := s.addNode("n", nil)
	s.addPod("web", node, nil)
	m := s.addMachine("a", node, machinev1beta1.LifecycleHooks{})
	s.awaitMachine("a", func(m *machinev1beta1.Machine) bool { return m.Status.NodeRef != nil })
	s.writes.arm(index, isLate)
	s.MustDelete(m)
	s.awaitCutOrGone(m)
	stop()
	s.writes.fix()
	stop = s.startWith(quick)
	s.AwaitGone(m)
	s.AwaitGone(node)
	stop() // the effect of the last write may be visible before its answer arrives
	var done []string
	for _, line := range s.writes.matching("") {
		isReported := strings.Contains(line, "/status") && !strings.HasSuffix(line, " drained")
		isRepeated := strings.HasSuffix(line, " drained") && slices.Contains(done, line) // others are written beside it
		isRefused := strings.Contains(line, ": 4")
		if !isReported && !isRepeated && !isRefused {
			done = append(done, line)
		}
	}
	select {
	case <-s.writes.cut:
	default:
		if index <= leastWrites {
			t.Errorf("the controller did not die at write %d", index)
		}
	}
	want := []string{
		"PATCH nodes/n", "POST pods/web/eviction", "PATCH machines/a/status drained",
		"DELETE externalmachines/a", "DELETE nodes/n", "PATCH machines/a",
	}
	if !slices.Equal(done, want) {
		t.Errorf("writes in this order: %q, want %q; all are %q", done, want, s.writes.matching(""))
	}
}

// awaitCutOrGone waits until the connection of the controller is cut, or the machine is deleted.
func (s *scenario) awaitCutOrGone(m *machinev1beta1.Machine) {
	s.Helper()
	err := wait.PollUntilContextTimeout(s.Context(), quick.LongestWait, 5*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			select {
			case <-s.writes.cut:
				return true, nil
			default:
			}
			err := s.Get(ctx, client.ObjectKeyFromObject(m), &machinev1beta1.Machine{})
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
	if err != nil {
		s.Fatal(err)
	}
}
