package fields

import (
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// ForeignFields are fields of an object that a manager has set, and that the release of the object does not have.
type ForeignFields struct {
	Manager string    `json:"manager"`
	Since   time.Time `json:"since,omitzero"` // when the manager last changed any of its fields
	Fields  []string  `json:"fields"`
}

// mostForeign is how many fields of a manager are named in a sentence.
const mostForeign = 5

// notInRelease ends each sentence about foreign fields.
const notInRelease = ", which the release does not have"

// String returns who has set which fields, and when, in a sentence.
func (f ForeignFields) String() string {
	text := f.Manager + " set " + printable.Few(f.Fields, mostForeign)
	if !f.Since.IsZero() {
		text += " at " + f.Since.UTC().Format(time.RFC3339)
	}
	return text + notInRelease
}

// IsForeign reports whether a line about a waiting object is about foreign fields.
func IsForeign(line string) bool { return strings.HasSuffix(line, notInRelease) }
