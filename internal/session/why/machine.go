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

// explainMachine adds the explanation of a machine to an answer. The machine is ready if it runs, whether it belongs to
// a release or not.
func explainMachine(answer *Answer, machine *overview.MachineExplanation) {
	var messages []Message
	for _, statement := range machine.Statements {
		messages = append(messages, Message{Text: statement.Text, Details: statement.Details})
	}
	answer.Messages = append(messages, answer.Messages...)
	answer.Unknown = append(answer.Unknown, machine.Unknown...)
	if machine.IsDone() {
		return
	}
	answer.Done = false
	switch {
	case machine.Stage != "":
		answer.State = Terminating
	case answer.State == Ready || answer.State == Changed || answer.State == Unknown:
		answer.State = NotReady
	}
}
