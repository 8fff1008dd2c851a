package object

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// maskSecrets returns an error without values that it may quote from a Secret, or from the hooks of a Deployment.
// Servers and webhooks quote the values that they refuse: in the message, in the reason, and in the causes.
func maskSecrets(m *payload.Manifest, err error) error {
	if !holdsSecrets(m) {
		return withoutHookValues(m, err)
	}
	var refused apierrors.APIStatus
	if !errors.As(err, &refused) {
		return err
	}
	status, text := refused.Status(), "the server refuses it"
	if status.Code != 0 {
		text += fmt.Sprintf(" with %d", status.Code)
	}
	if slices.Contains(serverReasons, status.Reason) {
		text += " " + string(status.Reason)
	}
	text += " (" + causeOf(err).name + ")"
	if parts := refusedFields(err, status); len(parts) > 0 {
		text += ", for " + strings.Join(parts, ", ")
	}
	return errors.New(text + "; its message is not shown, since it may quote the Secret")
}

// refusedFields returns the fields that the server refuses, with the reasons, and without the messages of webhooks.
func refusedFields(err error, status metav1.Status) []string {
	if isDeniedByWebhook(err) {
		return nil
	}
	var parts []string
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			if cause.Field != "" {
				parts = append(parts, fmt.Sprintf("%s (%s)", cause.Field, cause.Type))
			}
		}
	}
	for _, found := range misfit.FindAllStringSubmatch(err.Error(), -1) {
		parts = append(parts, fmt.Sprintf("%s (expected %s)", found[1], found[2]))
	}
	return parts
}

// serverReasons are the reasons of the API server itself. Any other reason is the text of a webhook.
var serverReasons = []metav1.StatusReason{
	metav1.StatusReasonUnauthorized, metav1.StatusReasonForbidden, metav1.StatusReasonNotFound,
	metav1.StatusReasonAlreadyExists,
	metav1.StatusReasonConflict, metav1.StatusReasonGone, metav1.StatusReasonInvalid, metav1.StatusReasonServerTimeout,
	metav1.StatusReasonTimeout,
	metav1.StatusReasonTooManyRequests, metav1.StatusReasonBadRequest, metav1.StatusReasonMethodNotAllowed,
	metav1.StatusReasonNotAcceptable,
	metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonUnsupportedMediaType, metav1.StatusReasonInternalError,
	metav1.StatusReasonExpired, metav1.StatusReasonServiceUnavailable,
}

// withoutHookValues returns an error without the values of environment variables of a Deployment's hooks.
func withoutHookValues(m *payload.Manifest, err error) error {
	hooks, _ := deploymenthook.Parse(m.Object())
	if hooks == nil {
		return err
	}
	text := deploymenthook.Rollout{Hooks: hooks}.Masker().Replace(err.Error())
	if text == err.Error() {
		return err
	}
	return maskedError{text, err}
}

// A maskedError contains a text without secret values.
type maskedError struct {
	text string
	err  error
}

func (m maskedError) Error() string { return m.text }
func (m maskedError) Unwrap() error { return m.err }

// misfit matches a server's message for a value of a wrong type.
var misfit = regexp.MustCompile(`(?m)(?:^|[\s:])(\.\S+): expected ([a-z]+)\b`)

// holdsSecrets reports whether a manifest is or has a Secret. A Secret without values may have some on the cluster.
func holdsSecrets(m *payload.Manifest) bool {
	return m.GroupVersionKind().GroupKind() == kinds.Secret ||
		fields.HoldsSecrets(m.Object().Object)
}

// maskWarnings returns a server's warnings, without those that may quote a Secret.
func maskWarnings(m *payload.Manifest, warnings []string) []string {
	if len(warnings) == 0 || !holdsSecrets(m) {
		return warnings
	}
	shown := make([]string, len(warnings))
	for i, warning := range warnings {
		shown[i] = "the server warns of a Secret; its message is not shown, since it may quote it"
		if known := slices.IndexFunc(valuelessWarnings, func(known string) bool {
			return strings.HasPrefix(warning, known)
		}); known >= 0 {
			shown[i] = valuelessWarnings[known]
		}
		apiVersion, kind := m.GroupVersionKind().ToAPIVersionAndKind()
		if rest, isOfKind := strings.CutPrefix(warning, apiVersion+" "+kind); isOfKind &&
			deprecation.MatchString(rest) {
			shown[i] = warning
		}
	}
	slices.Sort(shown)
	return slices.Compact(shown)
}

// valuelessWarnings are the beginnings of the API server's warnings about the certificate of a Secret. The rest of a
// warning may quote the certificate.
var valuelessWarnings = []string{
	"tls: failed to find any PEM data in certificate input",
	"tls: failed to find certificate PEM data in certificate input, but did find a private key",
	"tls: failed to find \"CERTIFICATE\" PEM block in certificate input",
	"tls: failed to find any PEM data in key input",
	"tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input",
	"tls: failed to parse private key",
	"tls: found a certificate rather than a key in the PEM for the private key",
	"tls: found unknown private key type in PKCS#8 wrapping",
	"tls: private key does not match public key",
	"tls: private key type does not match public key type",
	"tls: unknown public key algorithm",
	"x509: malformed certificate",
}

// deprecation matches the rest of the API server's own warning of a deprecated version, after the kind.
var deprecation = regexp.MustCompile(
	`^ is deprecated( in v1\.\d+\+)?(, unavailable in v1\.\d+\+)?(; use [a-z0-9./]+ [A-Za-z]+)?$`,
)

// maskConflicts returns conflicts without values that their paths may quote from a Secret: the path
// of a list item may have its value.
func maskConflicts(m *payload.Manifest, lost []ownership.Conflict) []ownership.Conflict {
	if !holdsSecrets(m) {
		return lost
	}
	var shown []ownership.Conflict
	for _, loss := range lost {
		loss.Field = ownership.MaskItem(loss.Field)
		shown = append(shown, loss)
	}
	return slices.Compact(shown)
}
