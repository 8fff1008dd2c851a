package rolloutplan

import (
	"fmt"
	"strings"
)

// String returns the steps that scale sets, or move machines between them, a line for each.
func (p RolloutPlan) String() string {
	var lines []string
	if p.New != nil {
		lines = append(lines, p.New.lines()...)
	}
	for _, step := range p.Old {
		lines = append(lines, step.lines()...)
	}
	return strings.Join(lines, "\n")
}

// lines returns what a step does, and why. It is empty for a step that changes nothing.
func (s SetStep) lines() []string {
	text := s.scaling()
	if text == "" {
		return nil
	}
	if len(s.Reasons) > 0 {
		text += ": " + strings.Join(s.Reasons, "; ")
	}
	return []string{text}
}

func (s SetStep) scaling() string {
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

// because adds a reason.
func (s *plannedSet) because(format string, arguments ...any) {
	s.Reasons = append(s.Reasons, fmt.Sprintf(format, arguments...))
}
