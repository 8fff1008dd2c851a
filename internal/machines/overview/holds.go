package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// This file has the texts of holds, and the remedies for holds of machines of both APIs. In a remedy, a command comes
// last, on a line of its own, so that it can be copied; the line before warns of its consequences.

// message returns a message with the hold of the machine, and the remedy for an administrator.
func (h *Hold) message(now time.Time) diagnosis.Message {
	text := h.sentence()
	if h.Since != nil {
		text += ", for " + age(now, *h.Since)
	}
	return diagnosis.Message{Text: text, Details: h.remedy}
}

// Remedy returns advice for an administrator. A command comes last, on a line of its own.
func (h *Hold) Remedy() []string { return h.remedy }

// sentence returns a sentence with the reason why the machine waits.
func (h *Hold) sentence() string {
	switch h.Type {
	case Failure:
		return "it has failed: " + h.Message
	case Controller:
		return "it waits for the machine controller to " + h.Message
	case Infrastructure:
		return "it waits for its " + strings.TrimPrefix(h.infrastructure(), "its ")
	case PreDrainHook, PreTerminateHook, Finalizer:
		return h.title() + " holds it"
	case Update:
		return "it is updated: " + h.short()
	case Remediation:
		return "it is " + h.short()
	case NodeNotReady:
		return "it is not ready: " + h.short()
	default:
		return "it waits: " + h.short()
	}
}

// hookTitles are the names of the types of hooks.
var hookTitles = map[HoldType]string{PreDrainHook: "preDrain hook", PreTerminateHook: "preTerminate hook"}

// title returns the name of a hook or a finalizer, with its type.
func (h *Hold) title() string {
	return strings.TrimSpace(hookTitles[h.Type] + " " + h.short())
}

// short returns the hold in a few words.
func (h *Hold) short() string {
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

// infrastructure describes the infrastructure in a few words.
func (h *Hold) infrastructure() string {
	text := "infrastructure"
	if h.Object != nil {
		text = h.Object.Kind + " " + h.Object.Name
	}
	if len(h.Finalizers) > 0 {
		text += fmt.Sprintf(" (%s %s)", plural("finalizer", len(h.Finalizers)),
			strings.Join(slices.Sorted(slices.Values(h.Finalizers)), ", "))
	}
	if h.Message != "" {
		text += ": " + h.Message
	}
	return text
}

// maxPods limits how many pods a line names.
const maxPods = 2

// HeldBy returns the reason why the machine waits in a line; "" if it waits for nothing.
func (m *Machine) HeldBy() string {
	var parts []string
	for start := 0; start < len(m.Holds); {
		end := start
		for end < len(m.Holds) && m.Holds[end].Type == m.Holds[start].Type {
			end++
		}
		parts = append(parts, joinHolds(m.Holds[start:end]))
		start = end
	}
	if len(parts) == 0 && len(m.Unknown) > 0 && m.Phase != "Running" {
		parts = append(parts, "not known: "+m.Unknown[0])
	}
	if len(m.Later) > 0 && len(parts) > 0 {
		parts = append(parts, "later "+joinHolds(m.Later))
	}
	return strings.Join(parts, "; ")
}

// joinHolds returns several holds of a type in a line.
func joinHolds(holds []Hold) string {
	var texts []string
	for _, hold := range holds {
		texts = append(texts, hold.short())
	}
	if holds[0].Type == Pod {
		return printable.Few(texts, maxPods)
	}
	text := strings.Join(texts, ", ")
	if title := hookTitles[holds[0].Type]; title != "" {
		text = plural(title, len(holds)) + " " + text
	}
	return text
}

func plural(word string, n int) string {
	if n > 1 {
		return word + "s"
	}
	return word
}

// commonRemedy returns the remedy of a hold that machines of both APIs have.
func (h *Hold) commonRemedy() []string {
	switch h.Type {
	case Node:
		problem := "the machine was started, and its kubelet has not joined the cluster; list the nodes:"
		if h.Object != nil {
			problem = "a node belongs to one machine: correct the wrong providerID before you delete one of the two " +
				"machines; the infrastructure that both refer to would be deleted, too"
		}
		return []string{problem, "kubectl get nodes -o custom-columns=NAME:.metadata.name,PROVIDERID:.spec.providerID"}
	case Finalizer:
		return []string{"the controller that has set it removes it; check why it does not"}
	case Controller:
		return []string{
			"if this lasts, check whether the machine controller runs:",
			"kubectl get pods --all-namespaces | grep machine",
		}
	}
	return nil
}

// hookRemedy returns the remedy of a hook, which ends with a command that removes the hook.
func (h *Hold) hookRemedy(command string) []string {
	var remedy []string
	if h.Message != "" {
		remedy = append(remedy, "its controller reports: "+h.Message)
	}
	return append(remedy,
		cmp.Or(h.Owner, "its owner")+" removes the hook when its work is done, without a time limit; check whether it "+
			"still runs",
		"if it was uninstalled, remove the hook; whatever the hook protects is not protected then:",
		command)
}

// podRemedy returns the remedy of a pod; skip is the command that continues without draining.
func (h *Hold) podRemedy(skip string) []string {
	if h.Object == nil {
		return nil
	}
	pod := h.Object.Name + " -n " + h.Object.Namespace
	switch drain.PodHold(h.Name) {
	case drain.Budget:
		return []string{
			"run more of its pods on other nodes, or relax the budget: the drain is retried within a minute",
			fmt.Sprintf("kubectl get poddisruptionbudget %s -n %s -o yaml",
				strings.Join(h.Budgets, " "), h.Object.Namespace),
			"a delete ignores budgets, so it interrupts the workload that the budget protects:",
			"kubectl delete pod " + pod,
		}
	case drain.Refused:
		return []string{
			"the drain is retried within a minute; a delete ignores budgets and webhooks for evictions:",
			"kubectl delete pod " + pod,
		}
	case drain.Finalizers:
		return []string{
			"the controllers that have set the finalizers remove them:",
			"kubectl get pod " + pod + " -o jsonpath='{.metadata.finalizers}'",
		}
	case drain.Ending:
		return []string{
			"no action is needed during its grace period; if its node is broken, continue without draining:", skip,
		}
	case drain.Later:
		return []string{"no action is needed: it is evicted once the pods before it are deleted"}
	case drain.Completion, drain.CompletionLater:
		return []string{"it is not evicted: wait until it has completed, or delete it", "kubectl delete pod " + pod}
	}
	if h.Toleration != "" {
		return []string{fmt.Sprintf("it is evicted once; the pod that replaces it also tolerates the cordon "+
			"(toleration %s), and is deleted with the node", h.Toleration)}
	}
	return []string{"no action is needed: it is evicted"}
}
