package state

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/overview"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// explainMachines adds to each answer on a machine what holds it, before all other messages.
func explainMachines(ctx context.Context, c *cluster.Cluster, answers []*why.Answer) {
	for _, answer := range answers {
		if !isMachine(answer.Object) {
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

func isMachine(id kinds.ID) bool {
	kind := schema.GroupKind{Group: id.Group, Kind: id.Kind}
	return kind == overview.Kind || kind == overview.ClusterAPIKind
}

// explainMachine adds the explanation of a machine to an answer. The machine is ready if it runs, whether it belongs to
// a release or not.
func explainMachine(answer *why.Answer, machine *overview.MachineExplanation) {
	var messages []why.Message
	for _, statement := range machine.Statements {
		messages = append(messages, why.Message{Text: statement.Text, Details: statement.Details})
	}
	answer.Messages = append(messages, answer.Messages...)
	answer.Unknown = append(answer.Unknown, machine.Unknown...)
	if machine.IsDone() {
		return
	}
	answer.Done = false
	switch {
	case machine.Stage != "":
		answer.State = why.Terminating
	case answer.State == why.Ready || answer.State == why.Changed || answer.State == why.Unknown:
		answer.State = why.NotReady
	}
}
