package manager_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/etcdguard/manager"
	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	machinemanager "github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var (
	soakTime = flag.Duration("soak", 0, "how long the control plane has accidents")
	soakSeed = flag.Uint64("soak-seed", 0, "seed of the choice of accidents; 0 uses the time")
)

// A planeScene is a scene whose machines are those of a RunlevelControlPlane, with an extension whose updates restart
// the member of a machine, as the update of a host does.
type planeScene struct {
	*scene
	plane      *v1alpha1.RunlevelControlPlane
	endGuard   func()
	endManager func()
	random     *rand.Rand
	patches    int // patches of the version
	templates  int
	isStarted  map[string]bool // updates, by machines
	restarting chan struct{}   // held by the call that restarts a member
}

// newPlaneScene creates three machines with a member each, and a control plane that adopts them.
func newPlaneScene(t *testing.T) *planeScene {
	t.Helper()
	own := &guardSandbox{SharedSandbox: machinetest.New(sandbox.Options{AuditPolicy: planeAudit})}
	t.Cleanup(func() { _ = own.Sandbox(t).Stop() })
	own.once.Do(func() { own.applyManifests(t) }) // the scene has a machine controller of its own
	s := &planeScene{scene: newSceneOn(t, own), isStarted: map[string]bool{}, restarting: make(chan struct{}, 1)}
	s.create(t, `{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {namespace: %s, name: c},
		spec: {controlPlaneRef: {apiGroup: controlplane.runlevel.dev, kind: RunlevelControlPlane, name: shop}}}`,
		s.namespace)
	s.start(t)
	for number := 1; number <= 3; number++ {
		s.createClusterAPIMachine(t, number)
	}
	s.eventually("the machines have their nodes", func(context.Context) error {
		if names := s.available(); len(names) != 3 {
			return fmt.Errorf("%v are available", names)
		}
		return nil
	})
	s.bootstrap(1, 2, 3)
	s.allowMembers(true)
	s.extend(t)
	s.guard(t)
	s.addTemplate(t)
	s.plane = &v1alpha1.RunlevelControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "shop"}}
	mustRead(t,
		`{spec: {replicas: 3, version: v1.36.0, rollout: {strategy: {rollingUpdate: {maxSurge: 0}}}, machineTemplate: {spec: {bootstrap: {dataSecretName: d},
		infrastructureRef: {apiGroup: infrastructure.runlevel.dev, kind: ExternalMachineTemplate, name: racks-1}}}}}`,
		s.plane)
	if err := s.client.Create(t.Context(), s.plane); err != nil {
		t.Fatal(err)
	}
	for number := 1; number <= 3; number++ {
		s.awaitAnnotation(t, number, true)
	}
	s.awaitSettled(t)
	return s
}

// start runs the machine controller, until it is ended.
func (s *planeScene) start(t *testing.T) {
	s.endManager = s.manage(t, s.shared.Sandbox(t).Config, machinemanager.ClusterAPI)
}

// guard runs the guard, until it is ended.
func (s *planeScene) guard(t *testing.T) {
	options := s.guardOptions()
	options.Endpoints = nil // those of the nodes: there are more machines than other scenes have
	options.MachineAPI = manager.ClusterAPI
	options.LeaseDuration = 10 * time.Minute
	s.endGuard = s.run(t, func(ctx context.Context) error { return manager.Run(ctx, s.api, options) })
}

// addTemplate creates another template, whose machines can't be made of existing ones, except for the first.
func (s *planeScene) addTemplate(t *testing.T) (name string) {
	t.Helper()
	s.templates++
	name = fmt.Sprint("racks-", s.templates)
	fields := "description: " + name
	if s.templates == 1 {
		fields = ""
	}
	s.create(t,
		`{apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: ExternalMachineTemplate, metadata: {namespace: %s, name: %s},
		spec: {template: {spec: {%s}}}}`, s.namespace, name, fields)
	return name
}

// newUpdater runs an extension that has the hooks of updates in place of a control plane.
func newUpdater(t *testing.T) *runtimehooktest.Extension {
	t.Helper()
	e := runtimehooktest.New(t)
	handler := func(name, hook string) string {
		return fmt.Sprintf(`{"name":%q,"requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":%q},"timeoutSeconds":10,"failurePolicy":"Fail"}`, name, hook)
	}
	e.Answer("Discovery",
		`{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","kind":"DiscoveryResponse","status":"Success","handlers":[`+
			handler("can", "CanUpdateMachine")+","+handler("update", "UpdateMachine")+"]}")
	return e
}

// extend registers the extension: it covers the version of a machine, and the first call of an update stops the member.
func (s *planeScene) extend(t *testing.T) {
	t.Helper()
	e := newUpdater(t)
	e.Serve("CanUpdateMachine", func(w http.ResponseWriter, r *http.Request) {
		var request hooksv1.CanUpdateMachineRequest
		_ = json.NewDecoder(r.Body).Decode(&request)
		patch := fmt.Appendf(nil, `{"spec":{"version":%q}}`, request.Desired.Machine.Spec.Version)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"status":       "Success",
			"machinePatch": map[string]any{"patchType": "JSONMergePatch", "patch": patch},
		})
	})
	e.Serve("UpdateMachine", func(w http.ResponseWriter, r *http.Request) {
		var request hooksv1.UpdateMachineRequest
		_ = json.NewDecoder(r.Body).Decode(&request)
		_, _ = fmt.Fprintf(w, `{"status":"Success","retryAfterSeconds":%d}`,
			s.restart(r.Context(), request.Desired.Machine.Name))
	})
	e.Register(t, s.client, s.namespace)
}

// restart does the next part of the update of a machine, and returns after how many seconds to call again.
func (s *planeScene) restart(ctx context.Context, machine string) int {
	select {
	case s.restarting <- struct{}{}:
	case <-ctx.Done(): // the caller waits no longer, and will repeat the call
		return 1
	}
	defer func() { <-s.restarting }()
	number := s.number(machine)
	if !s.isStarted[machine] {
		s.isStarted[machine] = true
		s.kill(number)
		return 1
	}
	joining, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if s.Join(joining, number) != nil {
		return 1
	}
	delete(s.isStarted, machine)
	return 0
}

// available returns the names of the machines that are available.
func (s *planeScene) available() []string {
	var names []string
	for _, m := range s.planeMachines() {
		if m.DeletionTimestamp == nil &&
			meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineAvailableCondition) {
			names = append(names, m.Name)
		}
	}
	return names
}

func (s *planeScene) planeMachines() []clusterv1.Machine {
	var list clusterv1.MachineList
	if err := s.client.List(s.Context(), &list, client.InNamespace(s.namespace)); err != nil {
		s.Error(err)
	}
	return list.Items
}

// awaitSettled waits until all machines are available and have the version and the template of the control plane.
func (s *planeScene) awaitSettled(t *testing.T) {
	t.Helper()
	s.eventually("the control plane is settled", func(ctx context.Context) error {
		if err := s.client.Get(ctx, client.ObjectKeyFromObject(s.plane), s.plane); err != nil {
			return err
		}
		members, err := s.members(ctx)
		if err != nil {
			return err
		}
		status := s.plane.Status
		if status.ObservedGeneration != s.plane.Generation || ptr.Deref(status.Replicas, 0) != 3 ||
			len(s.available()) != 3 ||
			!meta.IsStatusConditionFalse(status.Conditions, clusterv1.RollingOutCondition) || len(members) != 3 {
			text, _ := json.Marshal(status)
			return fmt.Errorf("members %s, %s", describeMembers(members), text)
		}
		return nil
	})
}

// awaitRollingOut waits until the control plane's condition RollingOut has a text.
func (s *planeScene) awaitRollingOut(text string) {
	s.Helper()
	s.eventually("RollingOut: "+text, func(ctx context.Context) error {
		if err := s.client.Get(ctx, client.ObjectKeyFromObject(s.plane), s.plane); err != nil {
			return err
		}
		found := meta.FindStatusCondition(s.plane.Status.Conditions, clusterv1.RollingOutCondition)
		if found == nil || !strings.Contains(found.Message, text) {
			return fmt.Errorf("%+v", found)
		}
		return nil
	})
}

// upgrade makes all machines get another version, in place.
func (s *planeScene) upgrade(t *testing.T) {
	t.Helper()
	s.patches++
	s.patchPlane(t, `{"spec":{"version":"v1.36.%d"}}`, s.patches)
}

// surge sets how many more machines rollouts may create than the control plane has.
func (s *planeScene) surge(t *testing.T, machines int) {
	t.Helper()
	s.patchPlane(t, `{"spec":{"rollout":{"strategy":{"rollingUpdate":{"maxSurge":%d}}}}}`, machines)
}

// replaceAll starts the replacement of all machines.
func (s *planeScene) replaceAll(t *testing.T) {
	t.Helper()
	s.patchPlane(t, `{"spec":{"machineTemplate":{"spec":{"infrastructureRef":{"name":%q}}}}}`, s.addTemplate(t))
}

func (s *planeScene) patchPlane(t *testing.T, format string, args ...any) {
	t.Helper()
	if err := s.patch(t.Context(), s.plane, fmt.Sprintf(format, args...)); err != nil {
		t.Fatal(err)
	}
}

// deleteByHand deletes machines.
func (s *planeScene) deleteByHand(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
		if err := client.IgnoreNotFound(s.client.Delete(t.Context(), m)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRunlevelControlPlaneKeepsQuorum updates all machines in place, of which each restarts its member, while etcd is
// written to; once more while a member does not answer; then it replaces them, and two that are deleted by a user; and
// with maxSurge 1 it replaces one and updates the others. With -soak, accidents follow.
func TestRunlevelControlPlaneKeepsQuorum(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := newPlaneScene(t)
	load := s.startLoad(t)
	before := s.available()
	s.upgrade(t)
	s.awaitSettled(t)
	if after := s.available(); !slices.Equal(before, after) {
		t.Errorf("machines %v became %v", before, after)
	}

	s.kill(3)
	s.upgrade(t)
	s.awaitRollingOut("waits for the etcd quorum guard to permit its update in place: these voting members of etcd " +
		"do not answer: etcd-3 (")
	s.eventually("the member starts again", func(ctx context.Context) error { return s.Join(ctx, 3) })
	s.awaitSettled(t)
	s.awaitMembers("1 2 3")

	s.replaceAll(t)
	s.awaitRollingOut("is replaced, not updated in place: infrastructureMachine spec.description")
	s.awaitSettled(t)
	s.awaitMembers("4 5 6")
	s.deleteByHand(t, s.machine(4), s.machine(5))
	s.awaitMembers("6 7 8")
	s.awaitSettled(t)

	before = s.available()
	s.surge(t, 1)
	s.upgrade(t)
	s.awaitSettled(t)
	after := s.available()
	if kept := slices.DeleteFunc(slices.Clone(after), func(name string) bool {
		return !slices.Contains(before, name)
	}); len(kept) != 2 {
		t.Errorf("of machines %v, %v are left: %v", before, kept, after)
	}
	s.soak(t, load)
	load.check(t)
	s.checkHistory(t)
}

// soak causes accidents in random order, and after some accidents waits until the control plane has settled. It ends
// early if etcd has lost its quorum.
func (s *planeScene) soak(t *testing.T, load *writingLoad) {
	seed := *soakSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	s.random = rand.New(rand.NewPCG(seed, 0))
	waves, begin := 0, time.Now()
	for ; time.Since(begin) < *soakTime && len(load.problems()) == 0; waves++ {
		for range 1 + s.random.IntN(3) {
			t.Logf("%s: wave %d: %s", time.Now().Format(time.TimeOnly), waves, s.accident(t))
			pause(t.Context(), time.Duration(s.random.IntN(4000))*time.Millisecond)
		}
		s.awaitSettled(t)
	}
	if waves > 0 {
		t.Logf("%d waves in %s, -soak-seed %d", waves, time.Since(begin).Round(time.Second), seed)
	}
}

// accident causes an accident, and returns its description.
func (s *planeScene) accident(t *testing.T) string {
	t.Helper()
	machines := s.available()
	switch what := s.random.IntN(7); {
	case what < 2:
		surge := s.random.IntN(2)
		s.surge(t, surge)
		s.upgrade(t)
		return fmt.Sprint("another version, with maxSurge ", surge)
	case what == 2:
		s.replaceAll(t)
		return "another template"
	case what == 3 && len(machines) > 0:
		name := machines[s.random.IntN(len(machines))]
		s.deleteByHand(t, name)
		return "delete " + name
	case what == 4 && len(machines) >= 3 && !slices.ContainsFunc(s.planeMachines(), isInUpdate):
		name := machines[s.random.IntN(len(machines))]
		if !s.hasStarted(s.number(name)) || !s.stopMember(t, name) {
			return "nothing"
		}
		return "stop the member of " + name
	case what == 5:
		s.endGuard()
		pause(t.Context(), time.Duration(s.random.IntN(3000))*time.Millisecond)
		s.guard(t)
		return "end the guard"
	case what == 6:
		s.endManager()
		s.start(t)
		return "end the machine controller"
	}
	return "nothing"
}

func isInUpdate(m clusterv1.Machine) bool { return rolloutrules.IsUpdating(&m) }

// stopMember stops the member of a machine for some seconds, and returns whether it did. One at a time is stopped: with
// two of three, a quorum would be missed whatever the guard does.
func (s *planeScene) stopMember(t *testing.T, name string) bool {
	t.Helper()
	s.restarting <- struct{}{} // not while an update restarts another one
	defer func() { <-s.restarting }()
	answers, err := s.askVoters(t.Context())
	if err != nil || len(answers) < 3 || slices.Contains(slices.Collect(maps.Values(answers)), false) {
		return false
	}
	number := s.number(name)
	s.kill(number)
	pause(t.Context(), time.Duration(s.random.IntN(6000))*time.Millisecond)
	isGone := func() bool {
		return !slices.ContainsFunc(s.planeMachines(), func(m clusterv1.Machine) bool { return m.Name == name })
	}
	s.eventually("the member starts again, or its machine is deleted", func(ctx context.Context) error {
		if isGone() {
			return nil
		}
		return s.Join(ctx, number)
	})
	s.eventually("the member answers again, or its machine is deleted", func(ctx context.Context) error {
		if isGone() {
			return nil
		}
		return s.ask(ctx, s.ClientURL(number))
	})
	return true
}
