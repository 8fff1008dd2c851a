// Package sandbox runs a real Kubernetes control plane on this machine, for development, tests and the demo: etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler as child processes, and kwok, which simulates nodes and
// the pods on them. It needs no container engine and no rights beyond the user's own.
//
// Stop deletes everything: certificates, data and logs are in one folder below the user's cache, ports are free ones on
// the loopback, and on Linux the kernel kills the processes when the process that started them ends; docs/sandbox.md
// describes other systems.
//
// A sandbox is not a cluster for workloads: without real nodes, no container runs, there is no kube-proxy, and Services
// only connect the API server to pods that run as processes. The control plane never leaves the loopback.
//
// Start is the function to start from. Package sandbox/binaries finds or builds the programs, sandbox/component runs
// them, sandbox/realnode adds nodes that run containers, and sandbox/sandboxtest shares one sandbox among the tests of
// a package.
package sandbox
