package core

import (
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/pkg/payload"
)

// foreignFlag is the flag that names the managers and objects whose foreign fields an apply removes.
const foreignFlag = "remove-foreign-fields"

// removesForeign returns which foreign fields the values of the flag remove; nil if there are no values. A value with a
// slash names an object, which the release must have, and any other value a manager.
func removesForeign(values []string, release *payload.Payload) (func(id kinds.ID, manager string) bool, error) {
	if len(values) == 0 {
		return nil, nil
	}
	var managers []string
	var objects []loader.Selector
	for _, value := range values {
		if !strings.Contains(value, "/") {
			managers = append(managers, value)
			continue
		}
		object, err := loader.ParseSelector(value)
		if err == nil {
			err = object.Check(release)
		}
		if err != nil {
			return nil, Misusef("--%s %s: %w", foreignFlag, value, err)
		}
		objects = append(objects, object)
	}
	return func(id kinds.ID, manager string) bool {
		isNamed := func(object loader.Selector) bool { return object.Matches(id) }
		return slices.Contains(managers, manager) || slices.ContainsFunc(objects, isNamed)
	}, nil
}
