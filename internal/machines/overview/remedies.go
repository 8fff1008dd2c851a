package overview

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// This file has the remedies for holds of machines. A command is last, on a line of its own, so that it can be copied;
// the line before warns of its consequences.

// statement returns a statement with what holds the machine, and what to do about that.
func (h *MachineHold) statement(remedy []string, now time.Time) diagnosis.Message {
	statement := diagnosis.Message{Text: h.waits(), Details: remedy}
	if h.Since != nil {
		statement.Text += ", for " + age(now, *h.Since)
	}
	return statement
}

// waits returns a sentence with what the machine waits for.
func (h *MachineHold) waits() string {
	switch h.Type {
	case Failure:
		return "it has failed: " + h.Message
	case Controller:
		return "it waits for the machine controller to " + h.Message
	case Infrastructure:
		return "it waits for its " + strings.TrimPrefix(h.infrastructure(), "its ")
	case PreDrainHook, PreTerminateHook, Finalizer:
		return h.sentence() + " holds it"
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

// sentence returns the words for a hook or a finalizer.
func (h *MachineHold) sentence() string {
	switch h.Type {
	case PreDrainHook:
		return "preDrain hook " + h.short()
	case PreTerminateHook:
		return "preTerminate hook " + h.short()
	default:
		return h.short()
	}
}

// commonRemedy returns what to do about a hold that machines of both APIs have.
func (h *MachineHold) commonRemedy() []string {
	switch h.Type {
	case Node:
		return h.nodeRemedy()
	case Finalizer:
		return []string{"the controller that has set it removes it; see what it waits for"}
	case Controller:
		return []string{"if this lasts, look whether the machine controller runs:",
			"kubectl get pods --all-namespaces | grep machine"}
	}
	return nil
}

// remedy returns what to do about a hold.
func (f *machineFacts) remedy(h *MachineHold) []string {
	switch h.Type {
	case PreDrainHook, PreTerminateHook:
		return h.hookRemedy(f.hookRemoval(h))
	case Pod:
		return h.podRemedy(f.command("annotate", " "+deletion.ExcludeNodeDraining+"="))
	case ControlPlaneNode:
		return []string{
			"nodes of the control plane are drained one after the other; nothing is to be done, unless node " +
				h.Object.Name + " takes no pods for another reason:",
			"kubectl uncordon " + h.Object.Name,
		}
	case Infrastructure:
		return f.infraRemedy(h)
	case NodeNotReady:
		return f.set.nodeRemedy(h, f.machine.Name, f.command("delete", " --wait=false"))
	case Failure:
		return []string{"only its deletion helps; " + f.set.replacement(f.machine) + ":", f.command("delete", "")}
	}
	return h.commonRemedy()
}

// hookRemedy returns how to remove a hook by a command.
func (h *MachineHold) hookRemedy(command string) []string {
	var remedy []string
	if h.Message != "" {
		remedy = append(remedy, "its controller reports: "+h.Message)
	}
	return append(remedy,
		cmp.Or(h.Owner, "its owner")+
			" removes the hook when its part is done, and no time limit does; check whether it still runs",
		"if it is gone for good, let go of the hook; what the hook protects is not protected then:",
		command)
}

// hookRemoval is the command that removes exactly one hook.
func (f *machineFacts) hookRemoval(h *MachineHold) string {
	patch := []any{
		patchOperation{"test", h.key + "/name", h.Name},
		patchOperation{Op: "remove", Path: h.key},
	}
	return f.command("patch", " --type=json -p '"+inQuotes(patch)+"'")
}

// A patchOperation is an operation of a JSON patch.
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value string `json:"value,omitempty"`
}

// inQuotes returns a value as JSON, for use within a shell's single quotes.
func inQuotes(value any) string {
	text, err := json.Marshal(value)
	if err != nil { // not possible for these types
		return ""
	}
	return strings.ReplaceAll(string(text), "'", `\u0027`)
}

// command is a kubectl command on the machine.
func (f *machineFacts) command(verb, rest string) string {
	return commandOn(f.machine, Kind.Group, verb, rest)
}

// commandOn is a kubectl command on the machine of a group.
func commandOn(m metav1.Object, group, verb, rest string) string {
	return fmt.Sprintf("kubectl %s machine.%s %s -n %s%s", verb, group, m.GetName(), m.GetNamespace(), rest)
}

// podRemedy returns how to remove a pod from a node; skip is the command that continues without draining.
func (h *MachineHold) podRemedy(skip string) []string {
	if h.Object == nil {
		return nil
	}
	pod := h.Object.Name + " -n " + h.Object.Namespace
	switch drain.PodHold(h.Name) {
	case drain.Budget:
		return []string{
			"have more of its pods run elsewhere, or loosen the budget: the drain is tried again within a minute",
			fmt.Sprintf("kubectl get poddisruptionbudget %s -n %s -o yaml", strings.Join(h.Budgets, " "),
				h.Object.Namespace),
			"a delete asks no budget, so it interrupts what the budget protects:",
			"kubectl delete pod " + pod,
		}
	case drain.Refused:
		return []string{"the drain is tried again within a minute; a delete asks no budget and no webhook for " +
			"evictions:", "kubectl delete pod " + pod}
	case drain.Finalizers:
		return []string{"the controllers that have set the finalizers remove them:",
			"kubectl get pod " + pod + " -o jsonpath='{.metadata.finalizers}'"}
	case drain.Ending:
		return []string{"nothing is to be done within its grace; if its node is broken, go on without draining:", skip}
	case drain.Later:
		return []string{"nothing is to be done: it is evicted when the pods before it are gone"}
	case drain.Completion, drain.CompletionLater:
		return []string{"it is not evicted: wait until it has completed, or delete it", "kubectl delete pod " + pod}
	}
	if h.Toleration != "" {
		return []string{fmt.Sprintf("it is evicted, once; what takes its place tolerates the cordon as well "+
			"(toleration %s), and ends with the node", h.Toleration)}
	}
	return []string{"nothing is to be done: it is evicted"}
}

// infraRemedy returns what to do about infrastructure.
func (f *machineFacts) infraRemedy(h *MachineHold) []string {
	switch {
	case h.Object == nil && f.isDeleting():
		return []string{"see the events below, and the log of the provider's machine controller"}
	case h.Object == nil:
		return nil
	case f.isDeleting() && len(h.Finalizers) > 0:
		object := fmt.Sprintf("%s.%s %s -n %s", strings.ToLower(h.Object.Kind), h.Object.Group, h.Object.Name,
			h.Object.Namespace)
		return []string{
			"its controller removes its finalizers once the machine is terminated:",
			"kubectl describe " + object,
			"if that controller is gone for good, terminate the machine by hand, and then let go of the object; a " +
				"machine that still runs would be forgotten:",
			"kubectl patch " + object + ` --type=merge -p '{"metadata":{"finalizers":null}}'`,
		}
	}
	return []string{fmt.Sprintf("kubectl describe %s.%s %s -n %s", strings.ToLower(h.Object.Kind), h.Object.Group,
		h.Object.Name, h.Object.Namespace)}
}

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
	return " (" + plural("finalizer", len(finalizers)) + " " +
		strings.Join(slices.Sorted(slices.Values(finalizers)), ", ") + ")"
}

func plural(word string, n int) string {
	if n > 1 {
		return word + "s"
	}
	return word
}
