package object

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/pkg/fields"
	"github.com/runlevel/runlevel/pkg/ownership"
	"github.com/runlevel/runlevel/pkg/payload"
)

// masked is an error without what it may quote of a Secret. Servers quote the values that
// they refuse, and so do webhooks.
func masked(m *payload.Manifest, err error) error {
	said := status(err)
	if said.Code == 0 || !holdsSecrets(m) {
		return err
	}
	var parts []string
	if said.Details != nil {
		for _, cause := range said.Details.Causes {
			if cause.Field != "" {
				parts = append(parts, fmt.Sprintf("%s (%s)", cause.Field, cause.Type))
			}
		}
	}
	for _, found := range misfit.FindAllStringSubmatch(err.Error(), -1) {
		parts = append(parts, fmt.Sprintf("%s (expected %s)", found[1], found[2]))
	}
	text := fmt.Sprintf("the server refuses it with %d", said.Code)
	if said.Reason != "" {
		text += " " + string(said.Reason)
	}
	text += " (" + causeOf(err).name + ")"
	if len(parts) > 0 {
		text += ", for " + strings.Join(parts, ", ")
	}
	return errors.New(text + "; what it says is not shown, for it may quote the Secret")
}

// misfit is how a server says where a value is not of the type that it is to have.
var misfit = regexp.MustCompile(`(?m)(?:^|[\s:])(\.\S+): expected ([a-z]+)\b`)

// holdsSecrets reports whether a manifest is a Secret, or has some in it.
func holdsSecrets(m *payload.Manifest) bool {
	return fields.HoldsSecrets(m.Object().Object)
}

// maskedWarnings are a server's, without those that may quote a Secret.
func maskedWarnings(m *payload.Manifest, warnings []string) []string {
	if len(warnings) == 0 || !holdsSecrets(m) {
		return warnings
	}
	return []string{"the server warns of a Secret; what it says is not shown, for it may quote it"}
}

// maskedLosses are fields that others had set otherwise, without what the path of one may
// quote of a Secret: an item of a list goes by its value.
func maskedLosses(m *payload.Manifest, lost []ownership.Conflict) []ownership.Conflict {
	if !holdsSecrets(m) {
		return lost
	}
	var shown []ownership.Conflict
	for _, loss := range lost {
		if path, _, hasItem := strings.Cut(loss.Field, "["); hasItem {
			loss.Field = path + "[***]"
		}
		shown = append(shown, loss)
	}
	return slices.Compact(shown)
}
