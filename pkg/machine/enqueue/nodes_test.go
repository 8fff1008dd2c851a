package enqueue_test

import (
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/machine/enqueue"
)

func TestIsNodeOfAnother(t *testing.T) {
	const owned, clusterAPIs = "machine.openshift.io/machine", "cluster.x-k8s.io/machine"
	for name, test := range map[string]struct {
		known       types.UID // the UID that the Machine knows
		annotations map[string]string
		want        bool
	}{
		"its own":                          {"new", map[string]string{owned: "shop/b"}, false},
		"one that joined again":            {"old", nil, false},
		"one that joined again as its own": {"old", map[string]string{owned: "shop/a"}, false},
		"another Machine's":                {"old", map[string]string{owned: "shop/b"}, true},
		"another namespace's":              {"old", map[string]string{owned: "mall/a"}, true},
		"a Machine's of Cluster API":       {"old", map[string]string{clusterAPIs: "a"}, true},
		"one whose UID the Machine lacks":  {"", map[string]string{owned: "shop/b"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "new", Annotations: test.annotations}}
			m := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}
			m.Status.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: "n", UID: test.known}
			if got := enqueue.IsNodeOfAnother(node, m); got != test.want {
				t.Errorf("it is another Machine's: %t, want %t", got, test.want)
			}
		})
	}
}
