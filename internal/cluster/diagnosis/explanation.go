package diagnosis

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A Message is a sentence with its details.
type Message struct {
	Text    string   `json:"text"`
	Details []string `json:"details,omitempty"`
}

// An Explanation reports what an object waits for, and what an administrator can do about it.
type Explanation struct {
	Messages      []Message // the most important first
	Unknown       []string  // failed reads
	IsDone        bool      // the object waits for nothing
	IsTerminating bool
}

// An Explainer explains the objects of kinds that have controllers of their own, such as machines.
type Explainer struct {
	Kinds []schema.GroupKind
	// Subject completes the message about a failed read, for example "what holds the machine".
	Subject string
	// Explain returns nil if the object does not exist, and an error that wraps cluster.ErrNotServed if the cluster
	// does not serve its kind.
	Explain func(context.Context, *cluster.Cluster, kinds.ID) (*Explanation, error)
}

// Explains reports whether the explainer explains the objects of a kind.
func (e Explainer) Explains(kind schema.GroupKind) bool { return slices.Contains(e.Kinds, kind) }

// Add adds a message, unless its text is empty.
func (e *Explanation) Add(text string, details ...string) {
	if text != "" {
		e.Messages = append(e.Messages, Message{Text: text, Details: details})
	}
}
