package apply

import (
	"errors"
	"fmt"
	"strings"

	"github.com/runlevel/runlevel/pkg/payload"
)

// masked is an error without what it may quote of a Secret. Servers quote the values that
// they refuse.
func masked(m *payload.Manifest, err error) error {
	said := status(err)
	if kind := m.ID(); kind.Group != "" || kind.Kind != "Secret" || said.Code == 0 {
		return err
	}
	var parts []string
	if said.Details != nil {
		for _, cause := range said.Details.Causes {
			parts = append(parts, fmt.Sprintf("%s (%s)", cause.Field, cause.Type))
		}
	}
	text := fmt.Sprintf("the server refuses it with %d %s", said.Code, said.Reason)
	if len(parts) > 0 {
		text += ", for " + strings.Join(parts, ", ")
	}
	return errors.New(text + "; what it says is not shown, for it may quote the Secret")
}
