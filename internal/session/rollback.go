package session

import (
	"fmt"
	"strconv"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// reasonChanged is the reason of a refused rollback: the release was updated after the user confirmed it.
const reasonChanged = "ReleaseChanged"

// checkRollback refuses a rollback from another version than the one that the user has seen.
func checkRollback(known *record.Record, wanted *record.Rollback) error {
	if wanted == nil {
		return nil
	}
	found, err := known.FindRollback(strconv.Itoa(wanted.To))
	if err != nil {
		return err
	}
	if found.From != wanted.From {
		return &reason.Error{Reason: reasonChanged, Message: fmt.Sprintf(
			"release %s has changed meanwhile: the rollback was from revision %d, and revision %d has begun: "+
				"run the rollback again", known.Release, wanted.From, found.From)}
	}
	return nil
}
