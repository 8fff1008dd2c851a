package capi

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Taints are written as KEY=VALUE:EFFECT, or KEY:EFFECT. Those of a Machine that are given to a new Node only have
// "once " before them.
func TestTaintsOfAMachineReachItsNode(t *testing.T) {
	const notNoted = "-"
	for name, c := range map[string]struct {
		node    []string
		noted   string // taints noted at the Node; notNoted before its Machine has set any
		machine []string
		want    []string
		wanted  string // taints that should be noted
	}{
		"none": {nil, notNoted, nil, nil, ""},
		"a new Node gets all": {nil, notNoted, []string{"a=1:NoSchedule", "once b:NoExecute"},
			[]string{"a=1:NoSchedule", "b:NoExecute"}, "a:NoSchedule"},
		"those of others stay": {[]string{"x:NoSchedule"}, notNoted, []string{"a:NoSchedule"},
			[]string{"x:NoSchedule", "a:NoSchedule"}, "a:NoSchedule"},
		"a taint with propagation Always is restored": {nil, "a:NoSchedule", []string{"a:NoSchedule"},
			[]string{"a:NoSchedule"}, "a:NoSchedule"},
		"a taint with propagation OnInitialization is not restored": {nil, "", []string{"once b:NoExecute"}, nil, ""},
		"a taint that the Machine no longer has is removed": {[]string{"a:NoSchedule", "x:NoSchedule"}, "a:NoSchedule",
			nil,
			[]string{"x:NoSchedule"}, ""},
		"a taint with propagation OnInitialization is kept": {[]string{"b:NoExecute"}, "", nil, []string{"b:NoExecute"},
			""},
		"another effect is another taint": {[]string{"a:NoSchedule"}, "a:NoSchedule", []string{"a:NoExecute"},
			[]string{"a:NoExecute"}, "a:NoExecute"},
		"the value is the Machine's": {[]string{"a=1:NoSchedule"}, "a:NoSchedule", []string{"a=2:NoSchedule"},
			[]string{"a=2:NoSchedule"}, "a:NoSchedule"},
		"always becomes once": {[]string{"a:NoSchedule"}, "a:NoSchedule",
			[]string{"once a:NoSchedule"}, []string{"a:NoSchedule"}, ""},
		"once becomes always": {nil, "", []string{"a:NoSchedule"}, []string{"a:NoSchedule"}, "a:NoSchedule"},
		"several are noted in their order": {nil, notNoted, []string{"b:NoExecute", "a:NoSchedule"},
			[]string{"b:NoExecute", "a:NoSchedule"}, "a:NoSchedule,b:NoExecute"},
		"the first sync initializes a Node": {[]string{"node.cluster.x-k8s.io/uninitialized:NoSchedule"}, notNoted,
			nil, nil, ""},
		"an annotation of nonsense takes nothing": {[]string{"x:NoSchedule"}, "x,:,", nil, []string{"x:NoSchedule"},
			""},
	} {
		node := &corev1.Node{}
		for _, text := range c.node {
			node.Spec.Taints = append(node.Spec.Taints, readTaint(text))
		}
		if c.noted != notNoted {
			node.Annotations = map[string]string{clusterv1.TaintsFromMachineAnnotation: c.noted}
		}
		var wanted []clusterv1.MachineTaint
		for _, text := range c.machine {
			rest, isOnce := strings.CutPrefix(text, "once ")
			taint, propagation := readTaint(rest), clusterv1.MachineTaintPropagationAlways
			if isOnce {
				propagation = clusterv1.MachineTaintPropagationOnInitialization
			}
			wanted = append(wanted, clusterv1.MachineTaint{
				Key:         taint.Key,
				Value:       taint.Value,
				Effect:      taint.Effect,
				Propagation: propagation,
			})
		}
		updateTaints(node, wanted)
		var got []string
		for _, taint := range node.Spec.Taints {
			got = append(got, taint.ToString())
		}
		if diff := cmp.Diff(c.want, got); diff != "" ||
			node.Annotations[clusterv1.TaintsFromMachineAnnotation] != c.wanted {
			t.Errorf("%s: noted %q, not %q (-want +got):\n%s", name,
				node.Annotations[clusterv1.TaintsFromMachineAnnotation], c.wanted, diff)
		}
	}
}

func readTaint(text string) corev1.Taint {
	name, effect, _ := strings.Cut(text, ":")
	key, value, _ := strings.Cut(name, "=")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
}
