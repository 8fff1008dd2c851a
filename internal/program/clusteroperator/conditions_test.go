package clusteroperator

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestConditionsOfAClusterOperator checks the conditions of a ClusterOperator for known states of the operator.
func TestConditionsOfAClusterOperator(t *testing.T) {
	starts := Status{Awaits: "the guard has not seen etcd yet"}
	trouble := Status{
		Degraded:       Problem{"MachinesFailed", "machines have failed: shop/m-1"},
		NotUpgradeable: Problem{"Deleting", "machines are being deleted: shop/m-2"},
	}
	for name, test := range map[string]struct {
		version string
		known   Status
		lacking []string
		of      configv1.ClusterStatusConditionType
		want    string
	}{
		"all is well": {"1", Status{}, nil, configv1.OperatorDegraded, "False AsExpected "},
		"available":   {"1", Status{}, nil, configv1.OperatorAvailable, "True AsExpected "},
		"it starts": {"1", starts, nil, configv1.OperatorAvailable,
			"False Starting the guard has not seen etcd yet"},
		"an update":        {"2", starts, nil, configv1.OperatorProgressing, "True Starting working towards 2"},
		"a restart":        {"1", starts, nil, configv1.OperatorProgressing, "False AsExpected "},
		"the update's end": {"2", Status{}, nil, configv1.OperatorProgressing, "False AsExpected "},
		"rights": {"1", trouble, []string{"patch nodes"}, configv1.OperatorDegraded,
			"True RightsMissing service account shop/guard lacks the right to patch nodes"},
		"a problem": {"1", trouble, nil, configv1.OperatorDegraded,
			"True MachinesFailed machines have failed: shop/m-1"},
		"no minor update": {"1", trouble, nil, configv1.OperatorUpgradeable,
			"False Deleting machines are being deleted: shop/m-2"},
		"a minor update": {"1", Status{}, nil, configv1.OperatorUpgradeable, "True AsExpected "},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Name: "guard", Namespace: "shop", Version: test.version}
			before := configv1.ClusterOperatorStatus{
				Versions: []configv1.OperandVersion{{Name: "operator", Version: "1"}},
			}
			after := o.next(before, test.known, test.lacking, metav1.Unix(2, 0))
			for _, condition := range after.Conditions {
				if got := string(condition.Status) + " " + condition.Reason + " " +
					condition.Message; condition.Type == test.of && got != test.want {
					t.Errorf("%s is %q, want %q", condition.Type, got, test.want)
				}
			}
			if got := after.Versions[0].Version; test.known.Awaits == "" && got != test.version ||
				test.known.Awaits != "" && got != "1" {
				t.Errorf("the version is %s", got)
			}
			if again := o.next(after, test.known, test.lacking, metav1.Unix(3, 0)); len(again.Conditions) != 4 ||
				again.Conditions[0] != after.Conditions[0] {
				t.Errorf("the conditions change without an update: %v", again.Conditions)
			}
		})
	}
}

func TestDenialsAreThoseOfTheAuthorizer(t *testing.T) {
	d := &Denials{}
	d.record([]byte(`{"message":"nodes \"a\" is forbidden: User \"system:serviceaccount:a:b\" cannot patch resource \"nodes\" in API group \"\" at the cluster scope"}`))
	d.record([]byte(
		`{"message":"User \"x\" cannot create resource \"pods/eviction\" in API group \"\" in the namespace \"shop\""}`,
	))
	d.record([]byte(`{"message":"ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no"}`))
	if len(d.denials) != 2 || !d.denials[denial{verb: "patch", resource: "nodes"}] ||
		!d.denials[denial{verb: "create", resource: "pods", subresource: "eviction", namespace: "shop"}] {
		t.Errorf("got the denials %v, want the rights to patch nodes and to create evictions", d.denials)
	}
}
