package infra

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// refusal returns the error of a request for infrastructure: an InvalidError, or one that may be temporary, such as an
// UnservedError.
func refusal(verb string, m Machine, err error) error {
	template := m.Template
	switch {
	case isUnserved(err):
		return &UnservedError{fmt.Sprintf("providerSpec.value: the cluster serves no kind %s of %s: install its "+
			"CustomResourceDefinition, "+
			"or write a kind that is served (kubectl api-resources)", template.GetKind(), template.GetAPIVersion())}
	// the template is not used by a delete
	case verb == deleting && isRefusedByAdmission(err) && !patch.IsLackOfRights(err):
		return fmt.Errorf("delete %s: the delete was refused: %w", describe(m), printable.Error(err))
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return invalid("the server refuses it: %s: correct it (kubectl explain %s.spec --api-version=%s)",
			RefusedFields(err), strings.ToLower(template.GetKind()), template.GetAPIVersion())
	case patch.IsLackOfRights(err):
		return fmt.Errorf("%s %s: grant the machine controller the right to %s that kind (docs/machines.md): %w",
			verb, describe(m), verb, printable.Error(err))
	}
	return fmt.Errorf("%s %s: %w", verb, describe(m), printable.Error(err))
}

// deleting is the verb of a request that deletes infrastructure.
const deleting = "delete"

// isRefusedByAdmission reports whether admission may have refused a request: webhooks return any of these codes.
func isRefusedByAdmission(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err)
}

// isUnserved reports whether the cluster does not serve a kind, or not in the requested version.
func isUnserved(err error) bool { return meta.IsNoMatchError(err) || isUnknownResource(err) }

// isUnknownResource reports whether the server does not know the path of a request, as after a definition was deleted.
// It answers NotFound, as it does for a single object.
func isUnknownResource(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// strictError precedes the unknown fields in the message of the server.
const strictError = "strict decoding error: "

// IsUnknownField reports whether the server refuses an object for a field that its kind does not have.
func IsUnknownField(err error) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), strictError)
}

// RefusedFields returns the server's messages about the fields that it refuses.
func RefusedFields(err error) string {
	var refused apierrors.APIStatus
	if !errors.As(err, &refused) || refused.Status().Details == nil || len(refused.Status().Details.Causes) == 0 {
		text := printable.Line(err.Error())
		if _, fields, ok := strings.Cut(text, strictError); ok {
			return fields
		}
		return text
	}
	var causes []string
	for _, cause := range refused.Status().Details.Causes {
		text := cause.Message
		if cause.Field != "" && cause.Field != "<nil>" {
			text = cause.Field + ": " + text
		}
		causes = append(causes, printable.Line(text))
	}
	return strings.Join(causes, "; ")
}
