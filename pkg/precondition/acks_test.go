package precondition_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/precondition"
)

// TestUnacknowledgedGates: gates of the minor version of the cluster are unacknowledged, and invalid gates.
func TestUnacknowledgedGates(t *testing.T) {
	gates := map[string]string{
		"ack-1.0-prices": "prices go: see https://example.com/notes", "ack-1.0-taxes": "taxes go",
		"ack-1.1-late":   "of the next version",
		"ack-4.12-early": "of another product", "ack-1.0-": "no name", "prices": "no form", "ack-1.0-silent": "",
	}
	for name, test := range map[string]struct {
		acks    map[string]string
		version string
		wanted  string
	}{
		"none is acknowledged": {nil, "1.0.7", `
ack-1.0-: the key "ack-1.0-" of ConfigMap openshift-config-managed/admin-gates has not the form ack-MAJOR.MINOR-NAME
ack-1.0-prices: prices go: see https://example.com/notes
ack-1.0-silent: the gate ack-1.0-silent of ConfigMap openshift-config-managed/admin-gates is empty: it must describe what to acknowledge
ack-1.0-taxes: taxes go
prices: the key "prices" of ConfigMap openshift-config-managed/admin-gates has not the form ack-MAJOR.MINOR-NAME`},
		"some are": {map[string]string{"ack-1.1-late": "true", "ack-4.12-early": "yes"}, "1.1.0", `
ack-1.0-: the key "ack-1.0-" of ConfigMap openshift-config-managed/admin-gates has not the form ack-MAJOR.MINOR-NAME
prices: the key "prices" of ConfigMap openshift-config-managed/admin-gates has not the form ack-MAJOR.MINOR-NAME`},
		"only true acknowledges": {map[string]string{"ack-4.12-early": "yes"}, "4.12.30", `
ack-1.0-: the key "ack-1.0-" of ConfigMap openshift-config-managed/admin-gates has not the form ack-MAJOR.MINOR-NAME
ack-4.12-early: of another product
prices: the key "prices" of ConfigMap openshift-config-managed/admin-gates has not the form ack-MAJOR.MINOR-NAME`},
	} {
		t.Run(name, func(t *testing.T) {
			var lines []string
			for _, adminGate := range precondition.PendingAcks(gates, test.acks, test.version) {
				lines = append(lines, adminGate.Name+": "+adminGate.Message)
			}
			if diff := cmp.Diff(strings.TrimSpace(test.wanted), strings.Join(lines, "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := precondition.PendingAcks(gates, nil, "unknown"); len(got) != len(gates) {
		t.Errorf("of a version that can't be read, %d of %d gates count", len(got), len(gates))
	}
}

// TestAGateStopsTheUpdate: a gate stops the update until it is acknowledged. If the user may not read the gates, a
// finding warns; if the gates can't be read, the finding stops the update.
func TestAGateStopsTheUpdate(t *testing.T) {
	gates := precondition.PendingAcks(map[string]string{"ack-4.5-prices": "prices go"}, nil, "4.5.3")
	expect(t, &precondition.Facts{Record: history("4.5.3"), Gates: gates},
		`Blocks AdminAck: ack-4.5-prices: prices go; resolve by: setting ack-4.5-prices: "true" in ConfigMap openshift-config/admin-acks`)
	denied := fmt.Errorf("denied: %w",
		apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "admin-gates", nil))
	expect(t, &precondition.Facts{Record: history("4.5.3"), GatesErr: denied},
		`Warns AdminAck: whether an administrator has something to acknowledge is not known: `+denied.Error()+
			`; resolve by: granting the right to read the ConfigMaps of admin gates`)
	expect(t, &precondition.Facts{Record: history("4.5.3"), GatesErr: fmt.Errorf("timeout")},
		`Blocks AdminAck: whether an administrator has something to acknowledge is not known: timeout; resolve by: retrying when the API server answers`)
}
