package manager

import (
	"errors"
	"strings"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"github.com/prometheus/client_golang/prometheus"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/etcdguard"
	"github.com/runlevel/runlevel/internal/program/clusteroperator"
)

// TestOperatorStatus checks the ClusterOperator's conditions for each observation.
func TestOperatorStatus(t *testing.T) {
	machines := []etcdguard.Machine{{Name: "a", Addresses: []string{"1"}, IsDeleting: true},
		{Name: "b", Addresses: []string{"2"}}}
	members := []etcdguard.Member{
		{ID: 1, Addresses: []string{"1"}, Health: etcdguard.Healthy},
		{ID: 2, Addresses: []string{"2"}, Health: etcdguard.Healthy},
	}
	steady := etcdguard.Snapshot{Voters: 2, Machines: machines[1:], Members: members}
	for name, test := range map[string]struct {
		seen    etcdguard.Snapshot
		due     etcdguard.Step
		stays   error // a guard pod
		lasting bool
		want    clusteroperator.Status
	}{
		"nothing to be done": {seen: steady, lasting: true},
		"a replacement": {seen: etcdguard.Snapshot{Voters: 2, Machines: machines, Members: members},
			want: clusteroperator.Status{
				NotUpgradeable: clusteroperator.Problem{
					Reason: "MemberReplacement",
					Message: "1 of 2 voting members of etcd are on machines that are being deleted, and a minor " +
						"update would restart the others",
				},
			}},
		"a missing voter": {seen: etcdguard.Snapshot{Voters: 3, Machines: machines[1:], Members: members},
			want: clusteroperator.Status{
				NotUpgradeable: clusteroperator.Problem{
					Reason:  "MemberReplacement",
					Message: "etcd has 2 of 3 voting members, and a minor update would restart them",
				},
			}},
		"no quorum, for a moment": {
			seen: steady,
			due:  etcdguard.Step{Reason: "NoQuorum", Message: "1 of 3 answer"},
		},
		"no quorum": {seen: steady, due: etcdguard.Step{Reason: "NoQuorum", Message: "1 of 3 answer"},
			lasting: true, want: clusteroperator.Status{
				Degraded: clusteroperator.Problem{Reason: "NoQuorum", Message: "1 of 3 answer"},
			}},
		"etcd is not reached": {seen: etcdguard.Snapshot{
			Voters:  3,
			Problem: "no",
		}, due: etcdguard.Step{Reason: "EtcdUnreachable", Message: "no"}, lasting: true,
			want: clusteroperator.Status{
				Degraded: clusteroperator.Problem{Reason: "EtcdUnreachable", Message: "no"},
			}},
		"a wait that needs no administrator": {
			seen:    steady,
			due:     etcdguard.Step{Reason: "LearnerStarts"},
			lasting: true,
		},
		"a guard pod stays": {seen: steady, stays: errors.New("a is refused\nb is refused"), lasting: true,
			want: clusteroperator.Status{
				Degraded: clusteroperator.Problem{
					Reason:  "GuardPodStays",
					Message: "a is refused; b is refused",
				},
			}},
		"a guard pod stays, and there is no quorum": {seen: steady, due: etcdguard.Step{Reason: "NoQuorum"},
			stays: errors.New("no"), lasting: true, want: clusteroperator.Status{
				Degraded: clusteroperator.Problem{Reason: "NoQuorum"},
			}},
	} {
		t.Run(name, func(t *testing.T) {
			var o observation
			o.record(test.seen, test.due, test.stays)
			patience := time.Hour
			if test.lasting {
				patience = 0
			}
			if got, err := o.operatorStatus(patience); err != nil || got != test.want {
				t.Errorf("got %+v, %v, want %+v", got, err, test.want)
			}
		})
	}
}

// TestProblemLasts makes a problem begin with its first reason, and end with the first observation without one.
func TestProblemLasts(t *testing.T) {
	var o observation
	if _, err := o.operatorStatus(0); err == nil {
		t.Error("got no error before the first observation")
	}
	o.recordFailure(errors.New("nodes can't be listed"))
	begun := o.since
	o.record(etcdguard.Snapshot{}, etcdguard.Step{Reason: "NoQuorum"}, nil)
	if o.since != begun {
		t.Errorf("got a problem since %v after its reason changed, want %v", o.since, begun)
	}
	o.record(etcdguard.Snapshot{}, etcdguard.Step{Reason: "AsExpected"}, nil)
	if got, _ := o.operatorStatus(0); got.Degraded.Reason != "" {
		t.Errorf("got %+v after the problem ended, want no degraded condition", got)
	}
	o.record(etcdguard.Snapshot{}, etcdguard.Step{Reason: "NoQuorum"}, nil)
	if !o.since.After(begun) {
		t.Errorf("got a problem since %v after a time without one, want a time after %v", o.since, begun)
	}
}

// TestMetrics reads the metrics of machines that are held, also while etcd is not reached.
func TestMetrics(t *testing.T) {
	g := &guard{}
	if served := servedBy(t, g); len(served) != 2 || served["etcd_reachable"] != 0 || served["held_machines"] != 0 {
		t.Errorf("before the first observation: got %v, want etcd_reachable and held_machines, both 0", served)
	}
	held := etcdguard.Machine{
		Name:       "ns/a",
		Addresses:  []string{"1"},
		IsDeleting: true,
		HeldSince:  time.Unix(1000, 0),
	}
	members := []etcdguard.Member{{ID: 1, Addresses: []string{"1"}, Health: etcdguard.Healthy},
		{ID: 2, Addresses: []string{"2"}, Health: etcdguard.Unhealthy}}
	begun := float64(time.Now().Unix())
	g.observation.record(etcdguard.Snapshot{
		Voters:   3,
		Machines: []etcdguard.Machine{held, {Name: "ns/b"}},
		Members:  members,
	}, etcdguard.Step{}, nil)
	served := servedBy(t, g)
	for name, want := range map[string]float64{
		"etcd_reachable": 1, "voters_wanted": 3, "voters": 2, "voters_healthy": 1, "replacements": 1,
		"held_machines": 1, "held_since_timestamp_seconds": 1000,
	} {
		if served[name] != want {
			t.Errorf("%s is %v, want %v", name, served[name], want)
		}
	}
	looked := served["last_look_timestamp_seconds"]
	if looked < begun {
		t.Errorf("the last look was at %v, and it began at %v", looked, begun)
	}
	g.observation.record(etcdguard.Snapshot{Voters: 3, Machines: []etcdguard.Machine{held}, Problem: "no"},
		etcdguard.Step{Reason: "EtcdUnreachable"}, nil)
	served = servedBy(t, g)
	if _, ok := served["voters"]; ok || served["etcd_reachable"] != 0 || served["held_machines"] != 1 ||
		served["last_look_timestamp_seconds"] != looked {
		t.Errorf("while etcd is not reached: got %v, want one held machine, no voters, and the last look at %v",
			served, looked)
	}
}

// servedBy returns the metrics of a guard, by their names without the prefix.
func servedBy(t *testing.T, g *guard) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(guardCollector{g})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]float64{}
	for _, family := range families {
		served[strings.TrimPrefix(family.GetName(), metricPrefix)] = family.GetMetric()[0].GetGauge().GetValue()
	}
	return served
}

// A guardCollector collects the metrics of a guard.
type guardCollector struct{ *guard }

func (guardCollector) Describe(chan<- *prometheus.Desc) {}

func (c guardCollector) Collect(metrics chan<- prometheus.Metric) { c.collect(metrics) }

// TestHeldMachines finds the hook of the guard on machines of both APIs.
func TestHeldMachines(t *testing.T) {
	hooked := &machinev1beta1.Machine{}
	hooked.Spec.LifecycleHooks.PreDrain = []machinev1beta1.LifecycleHook{{Name: HookName, Owner: HookOwner}}
	annotated := &clusterv1.Machine{}
	annotated.Annotations = map[string]string{
		"pre-terminate.delete.hook.machine.cluster.x-k8s.io/EtcdQuorumOperator": HookOwner,
	}
	other := &clusterv1.Machine{}
	other.Annotations = map[string]string{"pre-terminate.delete.hook.machine.cluster.x-k8s.io/other": ""}
	if !viewOpenShift(hooked).hasHook || viewOpenShift(&machinev1beta1.Machine{}).hasHook ||
		!viewClusterAPI(annotated).hasHook || viewClusterAPI(other).hasHook {
		t.Error("a hook is not found, or found where there is none")
	}
}
