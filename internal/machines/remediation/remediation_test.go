package remediation_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/runlevel/runlevel/internal/machines/remediation"
)

func TestMostUnhealthy(t *testing.T) {
	for limit, want := range map[string]int{"0": 0, "3": 3, "0%": 0, "39%": 1, "50%": 2, "100%": 5} {
		parsed := intstr.Parse(limit)
		if got, err := remediation.MostUnhealthy(&parsed, 5); err != nil || got != want {
			t.Errorf("%s of 5 machines: %d, %v; want %d", limit, got, err, want)
		}
	}
	if got, err := remediation.MostUnhealthy(nil, 5); err != nil || got != 5 {
		t.Errorf("without a limit: got %d, error %v, want 5", got, err)
	}
	if _, err := remediation.MostUnhealthy(&intstr.IntOrString{Type: intstr.String, StrVal: "many"}, 5); err == nil {
		t.Error("many: got no error, want one")
	}
}

func TestRangeOfUnhealthyMachines(t *testing.T) {
	for healthy, isAllowed := range map[int]bool{10: false, 9: false, 8: true, 6: true, 5: false} {
		census := remediation.Census{Machines: 10, Healthy: healthy, Least: 2, Most: 4}
		if census.AllowsRemediation() != isAllowed {
			t.Errorf("%d of 10 machines are healthy, and 2 to 4 may be unhealthy: got allowed %t, want %t",
				healthy, !isAllowed, isAllowed)
		}
	}
}
