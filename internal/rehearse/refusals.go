package rehearse

import (
	"errors"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runlevel/runlevel/internal/objects/crd"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
)

// refusalsOf returns the refusals of an object by the API server, one for each field. Before is the manifest of the
// object in the installed release; nil if there is none.
func refusalsOf(before, m *payload.Manifest, failure *object.Failure) []fields.Refusal {
	text := printable.Line(strings.TrimPrefix(failure.Err.Error(), failure.ID.String()+": "))
	if refusals := causesOf(m, failure); len(refusals) > 0 {
		return refusals
	}
	if refusals := immutablesOf(before, m, text); len(refusals) > 0 {
		return refusals
	}
	if path := fieldIn(m, text); path != nil {
		return []fields.Refusal{{Path: path, Message: text}}
	}
	var refusals []fields.Refusal
	for _, misfit := range m.Misfits() {
		refusals = append(refusals, fields.Refusal{
			Path:    misfit.Path,
			Message: strings.Join(misfit.Path, ".") + ": " + text,
		})
	}
	if len(refusals) == 0 {
		refusals = append(refusals, fields.Refusal{Message: text})
	}
	return refusals
}

// causesOf returns the refusals of an error that names fields; none for a Secret, whose causes may quote values.
func causesOf(m *payload.Manifest, failure *object.Failure) (refusals []fields.Refusal) {
	var status apierrors.APIStatus
	if !errors.As(failure.Err, &status) || status.Status().Details == nil || fields.HoldsSecrets(m.Object().Object) {
		return nil
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field != "" && !strings.HasPrefix(cause.Field, "<") {
			refusals = append(refusals, fields.Refusal{
				Path:    crd.FieldKeys(m.Object().Object, cause.Field),
				Message: cause.Field + ": " + printable.Line(cause.Message),
			})
		}
	}
	return refusals
}

// immutablesOf returns the refusals of changed immutable fields. The error of the API server often names only the whole
// spec.
func immutablesOf(before, m *payload.Manifest, text string) (refusals []fields.Refusal) {
	if before == nil || before == m {
		return nil
	}
	oldObject, newObject := before.Object().Object, m.Object().Object
	for _, change := range fields.Immutable(oldObject, newObject, fields.Diff(oldObject, newObject)) {
		refusals = append(refusals, fields.Refusal{
			Path:    change.Path.Keys(),
			Message: change.Path.String() + ": " + text,
		})
	}
	return refusals
}

// namedField matches the name of a field in an error of the API server, as in: .spec.replicas: expected numeric
var namedField = regexp.MustCompile(`(?:^|[ "])(\.[a-z][^ ]*?)(?::|,| of it|$)`)

// fieldIn returns the field that a text of the API server names; nil if there is none.
func fieldIn(m *payload.Manifest, text string) []string {
	match := namedField.FindStringSubmatch(text)
	if match == nil {
		return nil
	}
	return fields.KeysAt(m.Object().Object, match[1])
}
