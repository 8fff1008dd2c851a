package overview

import (
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// mostPods is how many pods are named in a line.
const mostPods = 2

// HeldBy returns what the machine waits for in a line; "" if for nothing.
func (m *MachineOverview) HeldBy() string {
	var parts []string
	for start := 0; start < len(m.Holds); {
		end := start
		for end < len(m.Holds) && m.Holds[end].Type == m.Holds[start].Type {
			end++
		}
		parts = append(parts, together(m.Holds[start:end]))
		start = end
	}
	if len(parts) == 0 && len(m.Unknown) > 0 && m.Phase != "Running" {
		parts = append(parts, "not known: "+m.Unknown[0])
	}
	if len(m.Later) > 0 && len(parts) > 0 {
		parts = append(parts, "later "+together(m.Later))
	}
	return strings.Join(parts, "; ")
}

// together returns several holds of a type in a line.
func together(holds []MachineHold) string {
	var texts []string
	for _, hold := range holds {
		texts = append(texts, hold.short())
	}
	first := holds[0]
	switch first.Type {
	case PreDrainHook:
		return plural("preDrain hook", len(holds)) + " " + strings.Join(texts, ", ")
	case PreTerminateHook:
		return plural("preTerminate hook", len(holds)) + " " + strings.Join(texts, ", ")
	case Pod:
		return printable.Few(texts, mostPods)
	default:
		return strings.Join(texts, ", ")
	}
}

// short is what holds, in a few words.
func (h *MachineHold) short() string {
	switch h.Type {
	case PreDrainHook, PreTerminateHook:
		if h.Owner == "" {
			return h.Name
		}
		return h.Name + " of " + h.Owner
	case ControlPlaneNode:
		return "node " + h.Object.Name + ", which is drained first"
	case Infrastructure:
		return h.infrastructure()
	case Node:
		return strings.TrimSpace("a node " + h.Message)
	case Finalizer:
		return "finalizer " + h.Name
	case Controller:
		return "the machine controller has to " + h.Message
	default:
		return h.Message
	}
}

// infrastructure is what is known of the infrastructure, in a few words.
func (h *MachineHold) infrastructure() string {
	text := "infrastructure"
	if h.Object != nil {
		text = h.Object.Kind + " " + h.Object.Name
	}
	text += withFinalizers(h.Finalizers)
	if h.Message != "" {
		text += ": " + h.Message
	}
	return text
}

func withFinalizers(finalizers []string) string {
	if len(finalizers) == 0 {
		return ""
	}
	return " (" + plural("finalizer", len(finalizers)) + " " + strings.Join(slices.Sorted(slices.Values(finalizers)), ", ") + ")"
}

func plural(word string, n int) string {
	if n > 1 {
		return word + "s"
	}
	return word
}
