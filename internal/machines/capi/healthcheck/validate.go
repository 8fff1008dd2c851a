package healthcheck

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/remediation"
)

// An invalidCheck is a mistake in the spec of a health check. No machine is examined until the spec changes.
type invalidCheck struct{ error }

func (p *invalidCheck) Unwrap() error { return p.error }

// selectorOf returns the selector of a health check. An empty one would select all machines, so it is invalid.
func selectorOf(check *clusterv1.MachineHealthCheck) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
	if err == nil && selector.Empty() {
		err = errors.New("it is empty: write labels of the machines to check")
	}
	if err != nil {
		return nil, &invalidCheck{fmt.Errorf("spec.selector: %w", err)}
	}
	return selector, nil
}

// validate returns an error if the range of unhealthy machines can't be read.
func validate(check *clusterv1.MachineHealthCheck) error {
	_, _, err := unhealthyRange(check, 0)
	return err
}

// unhealthyRange returns how many machines must be unhealthy, and how many may be, for remediation.
func unhealthyRange(check *clusterv1.MachineHealthCheck, machines int) (least, most int, err error) {
	trigger := check.Spec.Remediation.TriggerIf
	if trigger.UnhealthyInRange != "" {
		if _, err = fmt.Sscanf(trigger.UnhealthyInRange, "[%d-%d]", &least, &most); err == nil && most < least {
			err = errors.New("the second number is less than the first")
		}
		if err != nil {
			return 0, 0,
				&invalidCheck{fmt.Errorf("spec.remediation.triggerIf.unhealthyInRange is %s: write a range such as "+
					"[1-3]: %w", trigger.UnhealthyInRange, err)}
		}
		return least, most, nil
	}
	if most, err = remediation.MostUnhealthy(trigger.UnhealthyLessThanOrEqualTo, machines); err != nil {
		return 0, 0,
			&invalidCheck{fmt.Errorf("spec.remediation.triggerIf.unhealthyLessThanOrEqualTo: write a number, or a "+
				"percentage such as 40%%: %w", err)}
	}
	return 0, most, nil
}
