package machineset_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// selectorOf returns the selector that the scale subresource of a set has.
func (f *fixture) selectorOf(set *machinev1beta1.MachineSet) string {
	f.Helper()
	scale := &autoscalingv1.Scale{}
	if err := f.SubResource("scale").Get(f.Context(), set, scale); err != nil {
		f.Fatal(err)
	}
	return scale.Status.Selector
}

// TestTheScaleSubresourceHasTheSelector checks that the selector is written once, also if the controller restarts, and
// again after another client has removed it.
func TestTheScaleSubresourceHasTheSelector(t *testing.T) {
	t.Parallel()
	f := newIdleFixture(t)
	var writes atomic.Int32
	reach := sandboxtest.Before(shared.Sandbox(t).Config, func(request *http.Request) error {
		if request.Method == http.MethodPatch && strings.HasSuffix(request.URL.Path, "/machinesets/web/status") {
			writes.Add(1)
		}
		return nil
	})
	stop := f.manage(reach)
	set := f.newSet("web", 0)
	set.Spec.Template.Labels = map[string]string{"set": "web", "tier": "front"}
	set.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{
		Key:      "tier",
		Operator: metav1.LabelSelectorOpExists,
	}}
	f.MustCreate(set)
	const want = "set=web,tier"
	f.Eventually("the selector", func() bool { return f.selectorOf(set) == want })
	stop()
	before := writes.Load()
	f.manage(reach)
	f.scale(set, 1)
	f.awaitReplicas(set, 1)
	f.scale(set, 2)
	f.awaitReplicas(set, 2)
	if written := writes.Load() - before; written > 4 { // the generation and the machines, each time
		t.Errorf("%d writes of the status", written)
	}
	drop := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"labelSelector":null}}`))
	f.Must(f.Status().Patch(t.Context(), set, drop))
	f.Eventually("the selector again", func() bool { return f.selectorOf(set) == want })
}

// TestAnAutoscalerFindsTheMachinesOfASet has Kubernetes' own controller scale a set: it asks for the selector before
// all else.
func TestAnAutoscalerFindsTheMachinesOfASet(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 1)
	f.MustCreate(set)
	f.Eventually("the selector", func() bool { return f.selectorOf(set) != "" })
	scaler := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: f.Meta("web"),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			MaxReplicas: 3,
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
				APIVersion: "machine.openshift.io/v1beta1",
				Kind:       "MachineSet",
				Name:       "web",
			},
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{
					Name: corev1.ResourceCPU,
					Target: autoscalingv2.MetricTarget{
						Type:               autoscalingv2.UtilizationMetricType,
						AverageUtilization: new(int32(50)),
					},
				}}},
		},
	}
	f.MustCreate(scaler)
	f.Eventually("the autoscaler reports ScalingActive", func() bool {
		f.MustGet(scaler)
		for _, condition := range scaler.Status.Conditions {
			if condition.Type == autoscalingv2.ScalingActive {
				if condition.Reason != "FailedGetResourceMetric" { // a set of machines has no metrics of pods
					t.Errorf("%s: %s", condition.Reason, condition.Message)
				}
				return true
			}
		}
		return false
	})
}
