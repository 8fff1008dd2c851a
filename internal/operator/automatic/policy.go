package automatic

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// The annotations of a ClusterVersion.
const (
	UpdatesAnnotation  = "runlevel.dev/automatic-updates"
	WindowsAnnotation  = "runlevel.dev/update-windows"
	RollbackAnnotation = "runlevel.dev/automatic-rollback"
)

// FieldManager is the field manager of the updates that the operator requests by itself.
const FieldManager = "runlevel-automatic-updates"

// A policy is which updates a cluster takes by itself, and when.
type policy struct {
	updates       kind
	windows       []Window      // empty for any time
	rollbackAfter time.Duration // 0 for no rollbacks
}

// A kind is the kind of updates that a cluster takes by itself.
type kind string

const (
	off   kind = "off"
	patch kind = "patch"
	minor kind = "minor"
)

// readPolicy reads the annotations of a ClusterVersion. The error has a line for each bad one.
func readPolicy(annotations map[string]string) (policy, error) {
	p := policy{updates: off}
	var problems []error
	refuse := func(annotation string, err error) {
		problems = append(problems, fmt.Errorf("annotation %s: Invalid value: %w", annotation, err))
	}
	if text, isSet := annotations[UpdatesAnnotation]; isSet {
		p.updates = kind(text)
		if !slices.Contains([]kind{off, patch, minor}, p.updates) {
			refuse(UpdatesAnnotation, fmt.Errorf("%q: write patch, minor or off", short(text)))
		}
	}
	if text, isSet := annotations[WindowsAnnotation]; isSet {
		var err error
		if p.windows, err = ParseWindows(text); err != nil {
			refuse(WindowsAnnotation, err)
		}
	}
	if text, isSet := annotations[RollbackAnnotation]; isSet {
		var err error
		if p.rollbackAfter, err = time.ParseDuration(text); err != nil || p.rollbackAfter <= 0 {
			refuse(RollbackAnnotation, fmt.Errorf("%q: write a time, such as 1h or 30m", short(text)))
		}
	}
	return p, errors.Join(problems...)
}

func short(text string) string { return printable.Line(printable.Truncate(text, 100)) }

// requested returns the update that the operator has requested by itself, or else who has requested another one. A
// person only has to change one field of an update to make it theirs. Accepted risks are no request of an update.
func requested(v *configv1.ClusterVersion) (own *configv1.Update, others string) {
	update := v.Spec.DesiredUpdate
	if update == nil {
		return nil, ""
	}
	isSet := map[string]bool{
		"f:version": update.Version != "", "f:image": update.Image != "", "f:architecture": update.Architecture != "",
		"f:force": update.Force, "f:mode": update.Mode != "",
	}
	maps.DeleteFunc(isSet, func(_ string, isSet bool) bool { return !isSet })
	var managers []string
	isOwn := false
	for _, entry := range v.ManagedFields {
		for field := range requestedFields(entry) {
			switch {
			case !isSet[field]:
			case entry.Manager != FieldManager:
				managers = append(managers, entry.Manager)
			case field == "f:image":
				isOwn = true
			}
		}
	}
	slices.Sort(managers)
	switch {
	case len(isSet) == 0:
		return nil, ""
	case isOwn && len(managers) == 0:
		return update, ""
	case len(managers) == 0: // the manager is unknown
		return nil, "a user"
	default:
		return nil, short(strings.Join(slices.Compact(managers), " and "))
	}
}

// requestedFields returns the fields of the requested update that a manager has set.
func requestedFields(entry metav1.ManagedFieldsEntry) map[string]json.RawMessage {
	var fields struct {
		Spec struct {
			DesiredUpdate map[string]json.RawMessage `json:"f:desiredUpdate"`
		} `json:"f:spec"`
	}
	if entry.FieldsV1 != nil {
		_ = json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) // the API server has written them
	}
	return fields.Spec.DesiredUpdate
}
