package precondition

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// OpenShift's ConfigMaps of admin gates: releases write the gates, administrators acknowledge them.
var (
	AdminGates = types.NamespacedName{Namespace: "openshift-config-managed", Name: "admin-gates"}
	AdminAcks  = types.NamespacedName{Namespace: "openshift-config", Name: "admin-acks"}
)

// An AdminGate blocks updates to another minor version until an administrator has acknowledged the gate.
type AdminGate struct {
	Name       string // the key in both ConfigMaps
	Message    string // the change to acknowledge
	Resolution string // action that resolves the gate
}

// gateName matches the name of a gate, with the first minor version whose updates the gate blocks.
var gateName = regexp.MustCompile(`^ack-([0-9]+\.[0-9]+)-[^-]`)

// PendingAcks returns the gates of a version that are not acknowledged, from the data of the two ConfigMaps. If the
// version can't be parsed, it includes the gates of all versions.
func PendingAcks(gates, acks map[string]string, version string) []AdminGate {
	var pending []AdminGate
	current := parse(version)
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		form := gateName.FindStringSubmatch(name)
		isOfVersion := form == nil || current == nil ||
			form[1] == fmt.Sprintf("%d.%d", current.Major(), current.Minor())
		if !isOfVersion || form != nil && gates[name] != "" && acks[name] == "true" {
			continue
		}
		adminGate := AdminGate{name, printable.Line(gates[name]),
			fmt.Sprintf("setting %s: \"true\" in ConfigMap %s", name, AdminAcks)}
		switch {
		case form == nil:
			adminGate.Message = fmt.Sprintf("the key %q of ConfigMap %s has not the form ack-MAJOR.MINOR-NAME",
				printable.Line(name), AdminGates)
			adminGate.Resolution = "publishing a release that names the gate correctly"
		case gates[name] == "":
			adminGate.Message = fmt.Sprintf(
				"the gate %s of ConfigMap %s is empty: it must describe what to acknowledge", name, AdminGates,
			)
			adminGate.Resolution = "publishing a release that describes the gate"
		}
		pending = append(pending, adminGate)
	}
	return pending
}

// readAcks sets the gates that are not acknowledged. Gates apply to minor and major updates of the cluster's own
// release: other releases have their own versions.
func (f *Facts) readAcks(ctx context.Context, c *cluster.Cluster) {
	if !f.hop().isMinorOrMajor() || f.Record.Release != payload.DefaultName {
		return
	}
	data := func(name types.NamespacedName) map[string]string {
		found, err := c.Client.CoreV1().ConfigMaps(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			f.GatesErr = fmt.Errorf("read ConfigMap %s: %w", name, err)
		}
		return found.Data
	}
	f.Gates = PendingAcks(data(AdminGates), data(AdminAcks), f.start().Version)
}

// judgeAcks implements AdminAck. On a cluster without OpenShift's namespaces, a user may lack the right to read the
// ConfigMaps.
func judgeAcks(f *Facts) []Finding {
	const unknown = "whether an administrator has something to acknowledge is not known: %v"
	switch {
	case apierrors.IsForbidden(f.GatesErr):
		return []Finding{warns("granting the right to read the ConfigMaps of admin gates", unknown, f.GatesErr)}
	case f.GatesErr != nil:
		return []Finding{blocks("retrying when the API server answers", unknown, f.GatesErr)}
	}
	var findings []Finding
	for _, gate := range f.Gates {
		findings = append(findings, blocks(gate.Resolution, "%s: %s", printable.Line(gate.Name), gate.Message))
	}
	return findings
}
