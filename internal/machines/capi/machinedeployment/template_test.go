package machinedeployment

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/owners"
)

func TestUpToDateReasons(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.November, 23, 12, 0, 0, 0, time.UTC)
	small := clusterv1.MachineSpec{
		Version:           "v1.36.0",
		FailureDomain:     "a",
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{Kind: "KwokMachineTemplate", Name: "small"},
	}
	for name, c := range map[string]struct {
		change func(*clusterv1.MachineDeployment, *clusterv1.Machine)
		want   string
	}{
		"it is": {func(*clusterv1.MachineDeployment, *clusterv1.Machine) {}, "True UpToDate "},
		"all differences": {func(d *clusterv1.MachineDeployment, _ *clusterv1.Machine) {
			d.Spec.Template.Spec.Version, d.Spec.Template.Spec.FailureDomain = "v1.37.0", "b"
			d.Spec.Template.Spec.InfrastructureRef.Name = "large"
			d.Spec.Template.Spec.Bootstrap.DataSecretName = ptr.To("data")
		}, "False NotUpToDate * Version v1.36.0, v1.37.0 required\n* spec.bootstrap.dataSecretName nil, data " +
			"required\n" +
			"* KwokMachine is not up-to-date\n* Failure domain a, b required"},
		"what needs no new machine": {func(d *clusterv1.MachineDeployment, _ *clusterv1.Machine) {
			d.Spec.Template.Spec.MinReadySeconds = ptr.To[int32](5)
		}, "True UpToDate "},
		"the time has come": {func(d *clusterv1.MachineDeployment, _ *clusterv1.Machine) {
			d.Spec.Rollout.After = metav1.NewTime(now)
		}, "False NotUpToDate * MachineDeployment spec.rolloutAfter expired"},
		"the time has not come": {func(d *clusterv1.MachineDeployment, _ *clusterv1.Machine) {
			d.Spec.Rollout.After = metav1.NewTime(now.Add(time.Second))
		}, "True UpToDate "},
		"an older kubelet": {func(_ *clusterv1.MachineDeployment, m *clusterv1.Machine) {
			m.Status.NodeInfo.KubeletVersion = "v1.35.0"
		}, "False Updating * Node.status.nodeInfo.kubeletVersion v1.35.0, v1.36.0 required"},
		"it is updated in place": {func(_ *clusterv1.MachineDeployment, m *clusterv1.Machine) {
			m.Status.Conditions = []metav1.Condition{{
				Type:    "Updating",
				Status:  "True",
				Message: "In-place update in progress: step 1 of 3",
			}}
		}, "False Updating * In-place update in progress: step 1 of 3"},
	} {
		d, set, m := &clusterv1.MachineDeployment{}, &clusterv1.MachineSet{}, &clusterv1.Machine{Spec: small}
		set.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
		set.Spec.Template.Spec, d.Spec.Template.Spec = small, small
		m.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: "v1.36.0"}
		c.change(d, m)
		got := owners.UpToDate(m, (&snapshot{time: now, deployment: d}).missing(set))
		if diff := cmp.Diff(c.want, string(got.Status)+" "+got.Reason+" "+got.Message); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestCountAfterATemplateChange checks that the machines of a set are not up to date once the deployment has another
// template, even if the status of the set still counts them.
func TestCountAfterATemplateChange(t *testing.T) {
	t.Parallel()
	d, set := &clusterv1.MachineDeployment{}, &clusterv1.MachineSet{}
	d.Spec.Replicas = ptr.To[int32](1)
	d.Spec.Template.Spec.Version, set.Spec.Template.Spec.Version = "v1.37.0", "v1.36.0"
	set.Status.Replicas, set.Status.UpToDateReplicas = ptr.To[int32](1), ptr.To[int32](1)
	status := clusterv1.MachineDeploymentStatus{}
	count(&status, &snapshot{deployment: d, sets: []*clusterv1.MachineSet{set}})
	if *status.Replicas != 1 || *status.UpToDateReplicas != 0 {
		t.Errorf("got %d of %d replicas up to date, want 0 of 1", *status.UpToDateReplicas, *status.Replicas)
	}
}
