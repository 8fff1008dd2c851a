package rolloutplan_test

import (
	"fmt"
	"strings"

	"github.com/runlevel/runlevel/internal/machines/capi/machinedeployment/rolloutplan"
)

// textOf returns the steps that scale sets, or move machines between them, a line for each.
func textOf(p rolloutplan.Plan) string {
	var lines []string
	if p.New != nil {
		lines = append(lines, linesOf(*p.New)...)
	}
	for _, step := range p.Old {
		lines = append(lines, linesOf(step)...)
	}
	return strings.Join(lines, "\n")
}

// linesOf returns the action and the reasons of a step. It is empty for a step that changes nothing.
func linesOf(s rolloutplan.SetStep) []string {
	text := scalingOf(s)
	if text == "" {
		return nil
	}
	if len(s.Reasons) > 0 {
		text += ": " + strings.Join(s.Reasons, "; ")
	}
	return []string{text}
}

func scalingOf(s rolloutplan.SetStep) string {
	switch {
	case s.To > s.From:
		return fmt.Sprintf("scale %s up from %d to %d", s.Set, s.From, s.To)
	case s.To < s.From && s.MoveTo != "":
		return fmt.Sprintf("move machines of %s, scaled down from %d to %d, to %s", s.Set, s.From, s.To, s.MoveTo)
	case s.To < s.From:
		return fmt.Sprintf("scale %s down from %d to %d", s.Set, s.From, s.To)
	case len(s.Acknowledged) > 0:
		return fmt.Sprintf("keep %s at %d", s.Set, s.To)
	}
	return ""
}
