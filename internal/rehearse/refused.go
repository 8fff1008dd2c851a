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

// refusalsOf returns why the API server refuses an object: one refusal for each field. Before is the manifest of the
// release that was installed; nil if it has none.
func refusalsOf(before, m *payload.Manifest, failure *object.Failure) []fields.Refusal {
	text := printable.Line(strings.TrimPrefix(failure.Err.Error(), failure.ID.String()+": "))
	if found := causesOf(m, failure); len(found) > 0 {
		return found
	}
	if found := immutablesOf(before, m, text); len(found) > 0 {
		return found
	}
	if path := fieldIn(m, text); path != nil {
		return []fields.Refusal{{Path: path, Message: text}}
	}
	var found []fields.Refusal
	for _, misfit := range m.Misfits() {
		found = append(found, fields.Refusal{
			Path:    misfit.Path,
			Message: strings.Join(misfit.Path, ".") + ": " + text,
		})
	}
	if len(found) == 0 {
		found = append(found, fields.Refusal{Message: text})
	}
	return found
}

// causesOf returns the refusals of an error that names fields. Those of a Secret may quote its values.
func causesOf(m *payload.Manifest, failure *object.Failure) (found []fields.Refusal) {
	var status apierrors.APIStatus
	if !errors.As(failure.Err, &status) || status.Status().Details == nil || fields.HoldsSecrets(m.Object().Object) {
		return nil
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field != "" && !strings.HasPrefix(cause.Field, "<") {
			found = append(found, fields.Refusal{
				Path:    crd.FieldKeys(m.Object().Object, cause.Field),
				Message: cause.Field + ": " + printable.Line(cause.Message),
			})
		}
	}
	return found
}

// immutablesOf returns the refusals of changed fields that can't be changed: the API server often names the whole spec
// only.
func immutablesOf(before, m *payload.Manifest, text string) (found []fields.Refusal) {
	if before == nil || before == m {
		return nil
	}
	oldObject, newObject := before.Object().Object, m.Object().Object
	for _, change := range fields.Immutable(oldObject, newObject, fields.Diff(oldObject, newObject)) {
		found = append(found, fields.Refusal{
			Path:    change.Path.Keys(),
			Message: change.Path.String() + ": " + text,
		})
	}
	return found
}

// namedField matches a field that the API server names in a text, as in: .spec.replicas: expected numeric
var namedField = regexp.MustCompile(`(?:^|[ "])(\.[a-z][^ ]*?)(?::|,| of it|$)`)

// fieldIn returns the field that a text of the API server is about; nil if it names none.
func fieldIn(m *payload.Manifest, text string) []string {
	found := namedField.FindStringSubmatch(text)
	if found == nil {
		return nil
	}
	return fields.KeysAt(m.Object().Object, found[1])
}
