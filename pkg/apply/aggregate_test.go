package apply

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// unreachable is the address of a cluster that does not exist.
var unreachable = &rest.Config{Host: "https://localhost:1"}

// failing returns the failure of a cluster operator.
func failing(name, cause string, effect reason.Effect, message string) error {
	id := kinds.ID{Group: "config.openshift.io", Kind: "ClusterOperator", Name: name}
	return &object.Failure{
		StepID: object.StepID{ID: id, Path: name + ".yaml", Line: 1, Node: "level 10, " + name}, Reason: cause,
		Err: &reason.Error{Reason: cause, Effect: effect, Message: id.String() + ": it is " + message},
	}
}

// refused returns the failure of an object that could not be applied.
func refused(name string) error {
	return &object.Failure{
		StepID: object.StepID{
			ID:   kinds.ID{Kind: "ConfigMap", Namespace: "shop", Name: name},
			Path: name + ".yaml",
			Line: 1,
		},
		Reason: object.ResourceInvalid, Err: errors.New("it is invalid"),
	}
}

var aggregated = map[string]struct {
	failures []error
	reason   string
	effect   reason.Effect
	want     string
}{
	"one failure is itself": {
		failures: []error{refused("a")}, reason: object.ResourceInvalid,
		want: "ConfigMap shop/a (a.yaml:1): it is invalid",
	},
	"the same twice is one": {
		failures: []error{refused("a"), refused("a")}, reason: object.ResourceInvalid,
		want: "ConfigMap shop/a (a.yaml:1): it is invalid",
	},
	"several are sorted": {
		failures: []error{refused("b"), refused("a"), refused("b")}, reason: object.MultipleErrors,
		want: "multiple errors are preventing progress:\n* ConfigMap shop/a (a.yaml:1): it is invalid\n* ConfigMap " +
			"shop/b (b.yaml:1): it is invalid",
	},
	"many with one cause are reported once": {
		failures: []error{refused("a"), refused("b"), refused("c"), refused("d"), errors.New("else")},
		reason:   object.MultipleErrors,
		want: "multiple errors are preventing progress:\n* ConfigMap shop/a and 3 more (a.yaml:1): it is " +
			"invalid\n* else",
	},
	"one operator is itself": {
		failures: []error{failing("dns", ready.ReasonDegraded, reason.FailAfterInterval, "sick")},
		reason:   "ClusterOperatorDegraded", effect: reason.FailAfterInterval,
		want: "ClusterOperator dns (dns.yaml:1, level 10, dns): it is sick",
	},
	"operators with the same problem": {
		failures: []error{
			failing("etcd", ready.ReasonNotAvailable, reason.Fail, "away"),
			failing("dns", ready.ReasonNotAvailable, reason.Fail, "lost"),
			failing("dns", ready.ReasonNotAvailable, reason.Fail, "lost"),
		},
		reason: "ClusterOperatorsNotAvailable", effect: reason.Fail,
		want: "cluster operators dns, etcd are not available: ClusterOperator dns (dns.yaml:1, level 10, dns): it is lost; " +
			"ClusterOperator etcd (etcd.yaml:1, level 10, etcd): it is away",
	},
	"operators with different problems": {
		failures: []error{
			failing("b", ready.ReasonUpdating, reason.None, "slow"),
			failing("a", ready.ReasonUpdating, reason.None, "slow"),
			failing("c", ready.ReasonDegraded, reason.Report, "sick"),
		},
		reason: object.MultipleErrors, effect: reason.None,
		want: "multiple errors are preventing progress:\n* ClusterOperator c (c.yaml:1, level 10, c): it is sick\n" +
			"* cluster operators a, b are updating versions: ClusterOperator a (a.yaml:1, level 10, a): it is slow; " +
			"ClusterOperator b (b.yaml:1, level 10, b): it is slow",
	},
	"failing after a while outranks continuing": {
		failures: []error{failing("a", ready.ReasonDegraded, reason.Report, "sick"),
			failing("b", ready.ReasonDegraded, reason.FailAfterInterval, "ill")},
		reason: "ClusterOperatorsDegraded", effect: reason.FailAfterInterval,
		want: "cluster operators a, b are degraded: ClusterOperator a (a.yaml:1, level 10, a): it is sick; " +
			"ClusterOperator b (b.yaml:1, level 10, b): it is ill",
	},
	"failing at once outranks the others": {
		failures: []error{failing("a", ready.ReasonNoVersions, reason.Fail, "silent"), refused("b"),
			failing("c", ready.ReasonUpdating, reason.None, "slow")},
		reason: object.MultipleErrors, effect: reason.Fail,
		want: "multiple errors are preventing progress:\n* ClusterOperator a (a.yaml:1, level 10, a): it is silent\n" +
			"* ClusterOperator c (c.yaml:1, level 10, c): it is slow\n* ConfigMap shop/b (b.yaml:1): it is invalid",
	},
	"a failure without an effect fails at once": {
		failures: []error{failing("a", ready.ReasonDegraded, reason.FailAfterInterval, "sick"), refused("b")},
		reason:   object.MultipleErrors, effect: "",
		want: "multiple errors are preventing progress:\n* ClusterOperator a (a.yaml:1, level 10, a): it is sick\n* " +
			"ConfigMap shop/b (b.yaml:1): it is invalid",
	},
	"an interrupted step is not a failure": {
		failures: []error{&object.Failure{Err: object.CutOff{Cause: errors.New("the lock is lost")}}, refused("a")},
		reason:   object.ResourceInvalid,
		want:     "ConfigMap shop/a (a.yaml:1): it is invalid",
	},
}

func TestGroupsOfFailures(t *testing.T) {
	for name, row := range aggregated {
		t.Run(name, func(t *testing.T) {
			got := aggregate(row.failures)
			if diff := cmp.Diff(row.want, got.Error()); diff != "" {
				t.Error(diff)
			}
			why, effect := reason.Of(got), reason.EffectOf(got)
			var failure *object.Failure
			if errors.As(got, &failure) {
				why, effect = failure.Reason, failure.Effect()
			}
			if why != row.reason || effect != row.effect {
				t.Errorf("the reason is %q, the effect %q; want %q, %q", why, effect, row.reason, row.effect)
			}
		})
	}
	if got := aggregate([]error{
		&object.Failure{Err: object.CutOff{Cause: errors.New("the lock is lost")}},
	}); got != nil {
		t.Error("only cut off:", got)
	}
}
