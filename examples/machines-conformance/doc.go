// Package conformance checks a provider of machines: the controller of a kind of infrastructure object, for machines of
// machine.openshift.io and of Cluster API. It acts on such an object like the controllers of machines, and checks
// the requirements of docs/providers.md. The package only has a test. Run it against a cluster where the provider runs:
//
//	go test ./examples/machines-conformance -v -timeout 30m -args -kubeconfig=$HOME/.kube/config -object=/path/to/object.yaml
//
// The object needs a namespace, and gets names of its own. Without -object, the test checks the two providers that are
// built into Runlevel, on a sandbox. TestProvider is the test to start from.
package conformance
