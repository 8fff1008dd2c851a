package build

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// maxProblems limits the problems that are listed.
const maxProblems = 50

// problemAt returns an error that names a file, and its line and column unless they are 0.
func problemAt(file string, line, column int, format string, values ...any) error {
	place := filepath.ToSlash(file)
	for _, number := range []int{line, column} {
		if number > 0 {
			place += fmt.Sprintf(":%d", number)
		}
	}
	return errors.New(printable.Line(fmt.Sprintf("%s: %s", place, fmt.Errorf(format, values...))))
}

// joinProblems returns an error with a line for each problem; nil if there are none.
func joinProblems(problems []error) error {
	problems = slices.DeleteFunc(problems, func(err error) bool { return err == nil })
	if more := len(problems) - maxProblems; more > 0 {
		problems = append(slices.Clip(problems[:maxProblems]),
			fmt.Errorf("%d more problems are not listed: correct these first", more))
	}
	return errors.Join(problems...)
}

func sortedKeys[V any](values map[string]V) []string { return slices.Sorted(maps.Keys(values)) }
