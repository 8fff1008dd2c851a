package why

import (
	"context"
	"errors"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/overview"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// explainMachines adds to each answer on a machine what holds it, before all other messages.
func explainMachines(ctx context.Context, c *cluster.Cluster, answers []*Answer) {
	for _, answer := range answers {
		if kind := answer.Object.GroupKind(); kind != overview.Kind && kind != overview.ClusterAPIKind {
			continue
		}
		machine, err := overview.Explain(ctx, c, answer.Object)
		switch {
		case errors.Is(err, overview.ErrNotServed):
		case err != nil:
			answer.Unknown = append(answer.Unknown, "what holds the machine: "+printable.RequestError(err).Error())
		case machine != nil:
			explainMachine(answer, machine)
		}
	}
}

// explainControlPlanes adds to each answer on what replaces the machines of a control plane what it waits for, before
// all other messages.
func explainControlPlanes(ctx context.Context, c *cluster.Cluster, answers []*Answer) {
	for _, answer := range answers {
		if !overview.IsControlPlane(answer.Object) {
			continue
		}
		set, err := overview.ExplainControlPlane(ctx, c, answer.Object)
		switch {
		case errors.Is(err, overview.ErrNotServed):
		case err != nil:
			answer.Unknown = append(answer.Unknown, "what it waits for: "+printable.RequestError(err).Error())
		case set != nil:
			answer.Messages = append(messagesOf(set.Statements), answer.Messages...)
			answer.Unknown = append(answer.Unknown, set.Unknown...)
			answer.setWaiting(set.IsDone, false)
		}
	}
}

// messagesOf returns statements as messages.
func messagesOf(statements []overview.MachineStatement) []Message {
	var messages []Message
	for _, statement := range statements {
		messages = append(messages, Message{Text: statement.Text, Details: statement.Details})
	}
	return messages
}

// explainMachine adds the explanation of a machine to an answer. The machine is ready if it runs, whether it belongs to
// a release or not.
func explainMachine(answer *Answer, machine *overview.MachineExplanation) {
	answer.Messages = append(messagesOf(machine.Statements), answer.Messages...)
	answer.Unknown = append(answer.Unknown, machine.Unknown...)
	answer.setWaiting(machine.IsDone(), machine.Stage != "")
}

// setWaiting sets the state of an answer on an object that waits for something, unless it is done.
func (a *Answer) setWaiting(isDone, isTerminating bool) {
	switch {
	case isDone:
		return
	case isTerminating:
		a.State = Terminating
	case a.State == Ready || a.State == Changed || a.State == Unknown:
		a.State = NotReady
	}
	a.Done = false
}
