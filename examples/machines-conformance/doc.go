// Package conformance checks a provider of machines: the controller of a kind of infrastructure object, for machines of
// machine.openshift.io and of Cluster API. It does what the controllers of machines do with such an object, and checks
// what docs/providers.md asks of the provider. It has only a test, which is run against a cluster where the provider
// runs:
//
//	go test ./examples/machines-conformance -v -timeout 30m -args -kubeconfig=$HOME/.kube/config -object=/path/to/object.yaml
//
// The object needs a namespace, and gets names of its own. Without -object, the test checks the two providers that are
// built into Runlevel, on a sandbox. TestProvider is the test to start from.
package conformance
