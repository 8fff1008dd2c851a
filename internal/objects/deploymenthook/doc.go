// Package deploymenthook is the hooks of Deployments: commands that run in pods of their own before, in the middle of,
// and after a rollout. It is pure: it parses the annotation, and returns the next action for the observed facts.
//
// Parse, in parse.go, reads the hooks of a Deployment: decode.go decodes the annotation strictly, and check.go checks
// it against the Deployment. Rollout.Next, in rollout.go, takes the RolloutFacts observed in the cluster, and returns
// the next action of a rollout. NextPod, there as well, returns the pod that a hook runs in, and State, in state.go, is
// saved from one action to the next.
package deploymenthook
