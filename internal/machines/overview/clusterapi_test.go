package overview

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/machines/drain"
)

// clusterMachine is a Machine of Cluster API being deleted, with hooks; tests replace %REASON and
// %MESSAGE.
const clusterMachine = `
metadata:
  name: web-4
  namespace: shop
  deletionTimestamp: "2026-11-23T11:50:00Z"
  finalizers: [machine.cluster.x-k8s.io, example.com/backup]
  annotations:
    pre-drain.delete.hook.machine.cluster.x-k8s.io/migrate-app: app-op
    pre-drain.delete.hook.machine.cluster.x-k8s.iofoo: ""
    pre-terminate.delete.hook.machine.cluster.x-k8s.io/ship-logs: log-op
    pre-drain.hook.machine.runlevel.dev/migrate-app: "waits: the shop is open"
spec: {clusterName: shop, providerID: test://web-4}
status:
  phase: Deleting
  nodeRef: {name: node-4}
  conditions: [{type: Deleting, status: "True", reason: %REASON, message: "%MESSAGE", lastTransitionTime: "2026-11-23T11:55:00Z"}]
`

// deletedClusterAPIMachine returns a machine being deleted, with its node.
func deletedClusterAPIMachine(t *testing.T, reason, message string) *clusterAPIMachine {
	t.Helper()
	m := &clusterv1.Machine{}
	text := strings.NewReplacer("%REASON", reason, "%MESSAGE", message).Replace(clusterMachine)
	if err := yaml.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-4"}}
	return newClusterAPIMachine(m, &nodeList{byName: map[string]*corev1.Node{"node-4": node}})
}

func TestHoldsOfClusterAPIMachines(t *testing.T) {
	const logs = "; later preTerminate hook ship-logs of log-op"
	live := func(phase, condition, message string) func(*clusterAPIMachine) {
		return func(f *clusterAPIMachine) {
			f.machine.DeletionTimestamp, f.machine.Status.Phase = nil, phase
			f.machine.Status.Conditions = []metav1.Condition{{
				Type:    condition,
				Status:  metav1.ConditionFalse,
				Message: message,
			}}
		}
	}
	for name, c := range map[string]struct {
		reason, message string
		edit            func(*clusterAPIMachine)
		want            string
	}{
		"pre-drain hooks": {
			reason: "WaitingForPreDrainHook",
			want:   "preDrain hooks migrate-app of app-op, pre-drain.delete.hook.machine.cluster.x-k8s.iofoo" + logs,
		},
		"a pod and its budget": {reason: "DrainingNode", message: "Drain not completed yet",
			edit: func(f *clusterAPIMachine) {
				f.pods = &nodePods{holding: []drain.HeldPod{{
					Namespace: "shop",
					Name:      "web",
					Hold:      drain.Budget,
					Message:   "Pod shop/web is held by PodDisruptionBudget web",
				}}}
			}, want: "Pod shop/web is held by PodDisruptionBudget web" + logs},
		"a node of another cluster": {
			reason:  "DrainingNode",
			message: `Drain not completed yet:\n* Pod web`,
			want:    "Drain not completed yet: * Pod web" + logs,
		},
		"volumes": {
			reason:  "WaitingForVolumeDetach",
			message: "Waiting for Node volumes to be detached",
			want:    "Waiting for Node volumes to be detached" + logs,
		},
		"pre-terminate hooks": {
			reason: "WaitingForPreTerminateHook",
			want:   "preTerminate hook ship-logs of log-op",
		},
		"infrastructure": {
			reason:  "WaitingForInfrastructureDeletion",
			message: "Waiting for KwokMachine to be deleted",
			want:    "infrastructure: Waiting for KwokMachine to be deleted",
		},
		"bootstrap": {
			reason:  "WaitingForBootstrapDeletion",
			message: "Waiting for KwokConfig to be deleted",
			want:    "Waiting for KwokConfig to be deleted",
		},
		"a finalizer of others": {reason: "DeletionCompleted", edit: func(f *clusterAPIMachine) {
			f.machine.Finalizers = f.machine.Finalizers[1:]
		},
			want: "finalizer example.com/backup"},
		"not noticed": {
			edit: func(f *clusterAPIMachine) { f.machine.Status.Conditions = nil },
			want: "the machine controller has to observe the deletion",
		},
		"a machine that runs": {edit: live("Running", "Ready", "")},
		"a machine without a node yet": {
			edit: live("Provisioned", "Ready", ""),
			want: "a node with the providerID test://web-4",
		},
		"a machine without bootstrap data": {
			edit: live("Pending", "BootstrapConfigReady", "no secret yet"),
			want: "no secret yet",
		},
		"a machine without infrastructure": {
			edit: live("Provisioning", "InfrastructureReady", "no quota"),
			want: "infrastructure: no quota",
		},
		"a machine during an update": {edit: live("Updating", "Updating", "In-place update in progress: step 2 of 3"),
			want: "In-place update in progress: step 2 of 3"},
	} {
		t.Run(name, func(t *testing.T) {
			f := deletedClusterAPIMachine(t, c.reason, c.message)
			if c.edit != nil {
				c.edit(f)
			}
			m := f.overview()
			if got := m.HeldBy(); got != c.want {
				t.Errorf("held by %q, want %q", got, c.want)
			}
			if done := m.IsDone(); done != (c.want == "") {
				t.Errorf("IsDone is %v, but the machine is held by %q", done, c.want)
			}
		})
	}
}

// TestRemediesOfUpdates compares the last message of an extension, its age, and the command of the remedy.
func TestRemediesOfUpdates(t *testing.T) {
	const failed = "UpdateMachine hook failed: extension update-machine.ext answered Failure (the disk is full): see " +
		"the log of the extension"
	for name, c := range map[string]struct{ reason, message, want, command string }{
		"running": {"InPlaceUpdating", "In-place update in progress: step 2 of 3",
			"it is updated: In-place update in progress: step 2 of 3, for 5m",
			"kubectl get extensionconfigs -o " +
				"custom-columns='NAME:.metadata.name,DISCOVERED:.status.conditions[?(@.type==\"Discovered\")].message'"},
		"failed": {"InPlaceUpdateFailed", failed, "it is updated: " + failed + ", for 5m",
			"kubectl delete machine.cluster.x-k8s.io web-4 -n shop"},
		"a drain before it": {"InPlaceUpdating",
			"In-place update in progress: draining Node node-4: * Pod shop/web: cannot evict pod",
			"it is updated: In-place update in progress: draining Node node-4: * Pod shop/web: cannot evict pod, for 5m",
			"kubectl annotate machine.cluster.x-k8s.io web-4 -n shop machine.cluster.x-k8s.io/exclude-node-draining="},
		"the quorum guard before it": {"InPlaceUpdating",
			"In-place update in progress: waiting for the etcd quorum guard to permit it: a member does not answer",
			"it is updated: In-place update in progress: waiting for the etcd quorum guard to permit it: a member " +
				"does not answer, for 5m",
			"kubectl get clusteroperator etcd-quorum-guard -o yaml"},
	} {
		f := deletedClusterAPIMachine(t, "", "")
		f.machine.DeletionTimestamp, f.machine.Status.Phase = nil, "Updating"
		f.machine.Status.LastUpdated = metav1.NewTime(now.Add(-5 * time.Minute))
		f.machine.Status.Conditions = []metav1.Condition{{
			Type:    "Updating",
			Status:  metav1.ConditionTrue,
			Reason:  c.reason,
			Message: c.message,
		}}
		got := f.explain(now).Messages[1]
		if command := got.Details[len(got.Details)-1]; got.Text != c.want || command != c.command {
			t.Errorf("%s: got %q with the command %q, want %q with %q", name, got.Text, command, c.want, c.command)
		}
	}
}

// TestExplanationHasRollout checks that an outdated machine has the conditions of its MachineDeployment.
func TestExplanationHasRollout(t *testing.T) {
	f := deletedClusterAPIMachine(t, "", "")
	f.machine.DeletionTimestamp, f.machine.Status.Phase = nil, "Running"
	f.deployment = &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	f.deployment.Status.Conditions = []metav1.Condition{
		{Type: "ScalingUp", Status: metav1.ConditionFalse, Message: "no answer"},
		{
			Type:    "RollingOut",
			Status:  metav1.ConditionTrue,
			Message: "Rolling out 2 not up-to-date replicas\n* Replaced, not updated in place: the image",
		},
	}
	got := f.explain(now).Messages[1]
	want := []string{"Rolling out 2 not up-to-date replicas", "* Replaced, not updated in place: the image",
		"no answer"}
	if got.Text != "it is not up to date; its MachineDeployment web reports:" || !slices.Equal(got.Details, want) {
		t.Errorf("got %q, want the details %q", got, want)
	}
}

// TestRemediesOfUnhealthyMachines compares the findings of health checks, who remediates a machine, and what holds the
// remediation.
func TestRemediesOfUnhealthyMachines(t *testing.T) {
	const broken = "unhealthy (Condition Broken on Node is reporting status True, Node failed); "
	isController := true
	isOrphan := func(f *clusterAPIMachine) { f.machine.OwnerReferences = nil }
	marked := func(kind, reason, message string) func(*clusterAPIMachine) {
		return func(f *clusterAPIMachine) {
			f.machine.Status.Conditions = append(f.machine.Status.Conditions,
				metav1.Condition{Type: kind, Status: "False", Reason: reason, Message: message})
		}
	}
	checkedBy := func(kind string, status metav1.ConditionStatus) func(*clusterAPIMachine) {
		return func(f *clusterAPIMachine) {
			check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
			check.Spec.ClusterName = "shop"
			if kind != "" {
				check.Status.Conditions = []metav1.Condition{
					{Type: "RemediationAllowed", Status: "False", Message: "Remediation is not allowed"},
					{Type: kind, Status: status},
				}
			}
			f.checks = append(f.checks, check)
		}
	}
	for name, c := range map[string]struct {
		edits  []func(*clusterAPIMachine)
		want   string
		isKept bool // the remedy does not delete the machine
	}{
		"replaced by its set": {want: "MachineSet web has to replace it",
			edits: []func(*clusterAPIMachine){
				marked("OwnerRemediated", "WaitingForRemediation", "Waiting for remediation"),
			}},
		"waiting for others": {want: "MachineSet web replaces it: Waiting because there are already too many " +
			"remediations in progress",
			edits: []func(*clusterAPIMachine){marked("OwnerRemediated", "RemediationDeferred",
				"Waiting because there are already too many remediations in progress")}},
		"needed by etcd": {want: "MachineSet web does not replace it: this could cost etcd its quorum",
			isKept: true,
			edits: []func(*clusterAPIMachine){
				marked("OwnerRemediated", "CannotBeRemediated", "this could cost etcd its quorum"),
			}},
		"without an owner": {want: "it has no owner that would replace it", isKept: true,
			edits: []func(*clusterAPIMachine){isOrphan,
				marked("OwnerRemediated", "WaitingForRemediation", "Waiting for remediation")}},
		"remediated by another controller": {want: "another controller has to remediate it",
			edits: []func(*clusterAPIMachine){marked("ExternallyRemediated", "WaitingForRemediation", "")}},
		"without a template": {want: "Error retrieving remediation template RebootTemplate shop/gently",
			edits: []func(*clusterAPIMachine){marked("ExternallyRemediated", "RemediationTemplateNotFound",
				"Error retrieving remediation template RebootTemplate shop/gently")}},
		"skipped": {want: "not remediated, because of its annotation cluster.x-k8s.io/skip-remediation",
			edits: []func(*clusterAPIMachine){func(f *clusterAPIMachine) {
				f.machine.Annotations["cluster.x-k8s.io/skip-remediation"] = ""
			}}},
		"too many unhealthy machines": {
			want:  "MachineHealthCheck web: Remediation is not allowed",
			edits: []func(*clusterAPIMachine){checkedBy("Paused", "False")},
		},
		"paused health check": {want: "MachineHealthCheck web is paused, by its annotation " +
			"cluster.x-k8s.io/paused or by Cluster shop",
			edits: []func(*clusterAPIMachine){checkedBy("Paused", "True")}},
		"without a Cluster": {want: "MachineHealthCheck web has examined no machine yet: it does once Cluster " +
			"shop exists",
			edits: []func(*clusterAPIMachine){checkedBy("", "")}},
		"not remediated": {want: "nothing requests its remediation"},
	} {
		f := deletedClusterAPIMachine(t, "", "")
		f.machine.DeletionTimestamp, f.machine.Status.Phase = nil, "Running"
		f.machine.OwnerReferences = []metav1.OwnerReference{{
			Kind:       "MachineSet",
			Name:       "web",
			Controller: &isController,
		}}
		f.machine.Status.Conditions = []metav1.Condition{{
			Type: "HealthCheckSucceeded", Status: "False", Reason: "UnhealthyNode",
			LastTransitionTime: metav1.NewTime(now.Add(-5 * time.Minute)),
			Message: "Health check failed:\n  * Condition Broken on Node is reporting status True\n  * " +
				"Node failed",
		}}
		for _, edit := range c.edits {
			edit(f)
		}
		m, got := f.overview(), f.explain(now).Messages[1]
		if m.HeldBy() != broken+c.want || m.IsDone() {
			t.Errorf("%s: held by %q, want %q; IsDone is %v", name, m.HeldBy(), broken+c.want, m.IsDone())
		}
		if want := "it is " + broken + c.want + ", for 5m"; got.Text != want {
			t.Errorf("%s: got message %q, want %q", name, got.Text, want)
		}
		isKept := !slices.Contains(got.Details, "kubectl delete machine.cluster.x-k8s.io web-4 -n shop")
		if isKept != c.isKept {
			t.Errorf("%s: got remedy %q, want a deletion: %v", name, got.Details, !c.isKept)
		}
	}
}

func TestRemedyOfClusterAPIHook(t *testing.T) {
	got := deletedClusterAPIMachine(t, "WaitingForPreDrainHook", "").explain(now).Messages[1]
	want := diagnosis.Message{Text: "preDrain hook migrate-app of app-op holds it, for 5m", Details: []string{
		"its controller reports: waits: the shop is open",
		"app-op removes the hook when its work is done, without a time limit; check whether it still runs",
		"if it was uninstalled, remove the hook; whatever the hook protects is not protected then:",
		"kubectl annotate machine.cluster.x-k8s.io web-4 -n shop " +
			"pre-drain.delete.hook.machine.cluster.x-k8s.io/migrate-app-",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}
