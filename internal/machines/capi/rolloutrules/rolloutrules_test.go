package rolloutrules

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		replicas                       int32
		surge, unavailable             intstr.IntOrString
		wantedSurge, wantedUnavailable int
	}{
		"numbers":                                 {3, intstr.FromInt32(2), intstr.FromInt32(1), 2, 1},
		"surge is rounded up, the other down":     {10, intstr.FromString("25%"), intstr.FromString("25%"), 3, 2},
		"both come to nothing":                    {3, intstr.FromString("0%"), intstr.FromString("10%"), 0, 1},
		"no more are unavailable than are wanted": {2, intstr.FromInt32(0), intstr.FromInt32(5), 0, 2},
	} {
		spec := clusterv1.MachineDeploymentSpec{Replicas: &c.replicas}
		spec.Rollout.Strategy.RollingUpdate.MaxSurge, spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = &c.surge,
			&c.unavailable
		SetDefaults(&spec)
		surge, unavailable, err := Limits(&spec)
		if err != nil || surge != c.wantedSurge || unavailable != c.wantedUnavailable {
			t.Errorf("%s: got %d, %d, error %v, want %d, %d", name, surge, unavailable, err, c.wantedSurge,
				c.wantedUnavailable)
		}
	}
}

// TestReplacementReason checks the reasons that rule out an update in place before any extension is called.
func TestReplacementReason(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.November, 23, 12, 0, 0, 0, time.UTC)
	for want, change := range map[string]func(*clusterv1.MachineDeployment){
		"": func(d *clusterv1.MachineDeployment) { d.Spec.Template.Spec.Version = "v1.37.0" },
		"spec.rollout.after requires new machines": func(d *clusterv1.MachineDeployment) {
			d.Spec.Rollout.After = metav1.NewTime(now)
		},
		"spec.template.spec.infrastructureRef changes from kind KwokMachineTemplate to " +
			"RackTemplate": func(d *clusterv1.MachineDeployment) {
			d.Spec.Template.Spec.InfrastructureRef.Kind = "RackTemplate"
		},
		"spec.template.spec.bootstrap.configRef changes from kind none to " +
			"KwokConfigTemplate": func(d *clusterv1.MachineDeployment) {
			d.Spec.Template.Spec.Bootstrap.ConfigRef.Kind = "KwokConfigTemplate"
		},
	} {
		d, set := &clusterv1.MachineDeployment{}, &clusterv1.MachineSet{}
		set.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
		set.Spec.Template.Spec.InfrastructureRef.Kind = "KwokMachineTemplate"
		d.Spec.Template.Spec = set.Spec.Template.Spec
		change(d)
		if got := ReplacementReason(d, set, now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
