package ready_test

import (
	"testing"

	"github.com/runlevel/runlevel/internal/objects/ready"
)

// BenchmarkCheck measures the cost of each change of a watched object.
func BenchmarkCheck(b *testing.B) {
	for name, text := range map[string]string{
		"deployment": `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, generation: 2, annotations: {a: b}}, spec: {replicas: 3},
			status: {observedGeneration: 2, updatedReplicas: 3, replicas: 3, availableReplicas: 2, conditions: [{type: Available, status: "True"}, {type: Progressing, status: "True"}]}}`,
		"custom": `{apiVersion: example.com/v1, kind: Certificate, metadata: {name: web, generation: 2}, status: {conditions: [{type: Ready, status: "False", message: Not yet.}]}}`,
		"expression": `{apiVersion: example.com/v1, kind: Certificate, metadata: {name: web, annotations: {runlevel.dev/ready: 'self.status.conditions.exists(c, c.type == "Ready" && c.status == "True")'}},
			status: {conditions: [{type: Ready, status: "False", message: Not yet.}]}}`,
	} {
		object := readObject(b, []byte(text))
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ready.Check(object, ready.Full, ready.Related{})
			}
		})
	}
}
