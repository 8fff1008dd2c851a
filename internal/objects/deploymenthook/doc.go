// Package deploymenthook is the hooks of Deployments: commands that run in pods of their own before, in the middle of,
// and after a rollout. It is pure: it reads what an annotation says, and says what to do next, of what was seen.
//
// Parse, in parse.go, reads the hooks of a Deployment. Next, in sequence.go, is the sequence of a rollout: it is given
// what was seen of the cluster, and returns the next action. Pod, in pod.go, is the pod that a hook runs in, and State,
// in state.go, what is remembered from one action to the next.
package deploymenthook
