package overview

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/machines/drain"
)

// clusterMachine is a Machine of Cluster API that is being deleted, with hooks; %REASON and %MESSAGE are to be
// replaced.
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

func clusterFacts(t *testing.T, reason, message string) *clusterAPIFacts {
	t.Helper()
	m := &clusterv1.Machine{}
	text := strings.NewReplacer("%REASON", reason, "%MESSAGE", message).Replace(clusterMachine)
	if err := yaml.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-4"}}
	return &clusterAPIFacts{machine: m, nodes: &nodeList{byName: map[string]*corev1.Node{"node-4": node}}}
}

func TestWhatHoldsAMachineOfClusterAPI(t *testing.T) {
	const logs = "; later preTerminate hook ship-logs of log-op"
	live := func(phase, condition, message string) func(*clusterAPIFacts) {
		return func(f *clusterAPIFacts) {
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
		seen            func(*clusterAPIFacts)
		want            string
	}{
		"pre-drain hooks": {
			reason: "WaitingForPreDrainHook",
			want:   "preDrain hooks migrate-app of app-op, pre-drain.delete.hook.machine.cluster.x-k8s.iofoo" + logs,
		},
		"a pod and its budget": {reason: "DrainingNode", message: "Drain not completed yet",
			seen: func(f *clusterAPIFacts) {
				f.pods = &nodePods{left: []drain.HeldPod{{
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
		"a finalizer of others": {reason: "DeletionCompleted", seen: func(f *clusterAPIFacts) {
			f.machine.Finalizers = f.machine.Finalizers[1:]
		},
			want: "finalizer example.com/backup"},
		"not noticed": {
			seen: func(f *clusterAPIFacts) { f.machine.Status.Conditions = nil },
			want: "the machine controller has to notice the deletion",
		},
		"one that runs": {seen: live("Running", "Ready", "")},
		"one without a node yet": {
			seen: live("Provisioned", "Ready", ""),
			want: "a node with the providerID test://web-4",
		},
		"one without bootstrap data": {
			seen: live("Pending", "BootstrapConfigReady", "no secret yet"),
			want: "no secret yet",
		},
		"one without infrastructure": {
			seen: live("Provisioning", "InfrastructureReady", "no quota"),
			want: "infrastructure: no quota",
		},
		"one that is updated": {seen: live("Updating", "Updating", "In-place update in progress: step 2 of 3"),
			want: "In-place update in progress: step 2 of 3"},
	} {
		t.Run(name, func(t *testing.T) {
			f := clusterFacts(t, c.reason, c.message)
			if c.seen != nil {
				c.seen(f)
			}
			m := f.judge()
			if got := m.HeldBy(); got != c.want {
				t.Errorf("held by %q, want %q", got, c.want)
			}
			if done := m.IsDone(); done != (c.want == "") {
				t.Errorf("IsDone is %v, and it is held by %q", done, c.want)
			}
		})
	}
}

// TestWhatIsSaidOfAnUpdate: what the extension has said last, since when, and what to do.
func TestWhatIsSaidOfAnUpdate(t *testing.T) {
	const failed = "UpdateMachine hook failed: extension update-machine.ext answered Failure (the disk is full): see " +
		"the log of the extension"
	for name, c := range map[string]struct{ reason, message, want, command string }{
		"one that goes on": {"InPlaceUpdating", "In-place update in progress: step 2 of 3",
			"it is updated: In-place update in progress: step 2 of 3, for 5m",
			"kubectl get extensionconfigs -o " +
				"custom-columns='NAME:.metadata.name,DISCOVERED:.status.conditions[?(@.type==\"Discovered\")].message'"},
		"one that failed": {"InPlaceUpdateFailed", failed, "it is updated: " + failed + ", for 5m",
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
		f := clusterFacts(t, "", "")
		f.machine.DeletionTimestamp, f.machine.Status.Phase = nil, "Updating"
		f.machine.Status.LastUpdated = metav1.NewTime(now.Add(-5 * time.Minute))
		f.machine.Status.Conditions = []metav1.Condition{{
			Type:    "Updating",
			Status:  metav1.ConditionTrue,
			Reason:  c.reason,
			Message: c.message,
		}}
		said := f.explain(nil, now).Statements[1]
		if said.Text != c.want || said.Details[len(said.Details)-1] != c.command {
			t.Errorf("%s: said %q", name, said)
		}
	}
}

// TestWhatIsSaidOfARollout: why the machines of a MachineDeployment are replaced, and what is in the way.
func TestWhatIsSaidOfARollout(t *testing.T) {
	f := clusterFacts(t, "", "")
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
	said := f.explain(nil, now).Statements[1]
	want := []string{"Rolling out 2 not up-to-date replicas", "* Replaced, not updated in place: the image",
		"no answer"}
	if said.Text != "it is not up to date; its MachineDeployment web reports:" || !slices.Equal(said.Details, want) {
		t.Errorf("said %q", said)
	}
}

// TestWhatIsSaidOfAnUnhealthyMachine: what its health check has found, who remediates it, and what holds that.
func TestWhatIsSaidOfAnUnhealthyMachine(t *testing.T) {
	const broken = "unhealthy (Condition Broken on Node is reporting status True, Node failed); "
	isController := true
	isOrphan := func(f *clusterAPIFacts) { f.machine.OwnerReferences = nil }
	marked := func(kind, reason, message string) func(*clusterAPIFacts) {
		return func(f *clusterAPIFacts) {
			f.machine.Status.Conditions = append(f.machine.Status.Conditions,
				metav1.Condition{Type: kind, Status: "False", Reason: reason, Message: message})
		}
	}
	checkedBy := func(kind string, status metav1.ConditionStatus) func(*clusterAPIFacts) {
		return func(f *clusterAPIFacts) {
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
		edits  []func(*clusterAPIFacts)
		want   string
		isKept bool // no deletion is proposed
	}{
		"one that its set replaces": {want: "MachineSet web has to replace it",
			edits: []func(*clusterAPIFacts){
				marked("OwnerRemediated", "WaitingForRemediation", "Waiting for remediation"),
			}},
		"one that waits for others": {want: "MachineSet web replaces it: Waiting because there are already too many " +
			"remediations in progress",
			edits: []func(*clusterAPIFacts){marked("OwnerRemediated", "RemediationDeferred",
				"Waiting because there are already too many remediations in progress")}},
		"one that etcd needs": {want: "MachineSet web does not replace it: this could cost etcd its quorum",
			isKept: true,
			edits: []func(*clusterAPIFacts){
				marked("OwnerRemediated", "CannotBeRemediated", "this could cost etcd its quorum"),
			}},
		"one without an owner": {want: "it has no owner that would replace it", isKept: true,
			edits: []func(*clusterAPIFacts){isOrphan,
				marked("OwnerRemediated", "WaitingForRemediation", "Waiting for remediation")}},
		"one that another controller remediates": {want: "another controller has to remediate it",
			edits: []func(*clusterAPIFacts){marked("ExternallyRemediated", "WaitingForRemediation", "")}},
		"one without a template": {want: "Error retrieving remediation template RebootTemplate shop/gently",
			edits: []func(*clusterAPIFacts){marked("ExternallyRemediated", "RemediationTemplateNotFound",
				"Error retrieving remediation template RebootTemplate shop/gently")}},
		"one that is skipped": {want: "not remediated, because of its annotation cluster.x-k8s.io/skip-remediation",
			edits: []func(*clusterAPIFacts){func(f *clusterAPIFacts) {
				f.machine.Annotations["cluster.x-k8s.io/skip-remediation"] = ""
			}}},
		"one of too many": {
			want:  "MachineHealthCheck web: Remediation is not allowed",
			edits: []func(*clusterAPIFacts){checkedBy("Paused", "False")},
		},
		"one of a paused health check": {want: "MachineHealthCheck web is paused, by its annotation " +
			"cluster.x-k8s.io/paused or by Cluster shop",
			edits: []func(*clusterAPIFacts){checkedBy("Paused", "True")}},
		"one without a Cluster": {want: "MachineHealthCheck web has examined no machine yet: it does once Cluster " +
			"shop exists",
			edits: []func(*clusterAPIFacts){checkedBy("", "")}},
		"one that nothing remediates": {want: "nothing asks for its remediation"},
	} {
		f := clusterFacts(t, "", "")
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
		m := f.explain(nil, now)
		said := m.Statements[1]
		if m.HeldBy() != broken+c.want || said.Text != "it is "+broken+c.want+", for 5m" || m.IsDone() {
			t.Errorf("%s: held by %q, said %q", name, m.HeldBy(), said)
		}
		if isKept := !slices.Contains(said.Details,
			"kubectl delete machine.cluster.x-k8s.io web-4 -n shop"); isKept != c.isKept {
			t.Errorf("%s: the remedy is %q", name, said.Details)
		}
	}
}

func TestWhatIsSaidOfAHookOfClusterAPI(t *testing.T) {
	said := clusterFacts(t, "WaitingForPreDrainHook", "").explain(nil, now)
	want := diagnosis.Message{Text: "preDrain hook migrate-app of app-op holds it, for 5m", Details: []string{
		"its controller reports: waits: the shop is open",
		"app-op removes the hook when its part is done, and no time limit does; check whether it still runs",
		"if it is gone for good, let go of the hook; what the hook protects is not protected then:",
		"kubectl annotate machine.cluster.x-k8s.io web-4 -n shop " +
			"pre-drain.delete.hook.machine.cluster.x-k8s.io/migrate-app-",
	}}
	if got := said.Statements[1]; got.Text != want.Text || !slices.Equal(got.Details, want.Details) {
		t.Errorf("said %q, want %q", got, want)
	}
}
