// Package sandbox runs a real Kubernetes control plane on this machine, for
// development, tests and the demo: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler as child processes, and kwok, which
// simulates nodes and the pods on them. It needs no container engine and no
// rights beyond the user's own.
//
// Everything is deleted at the end: certificates, data and logs are in one
// folder under the user's cache, ports are free ones on loopback, and on Linux the
// kernel kills the processes when the process that started them ends; docs/sandbox.md
// describes other systems.
//
// It is no cluster to work in: pods run nothing, there is no kube-proxy, and
// Services only connect the API server to pods that run as processes. The
// control plane never leaves the loopback.
//
// Start is the call to start from. Package sandbox/binaries finds or builds the
// programs, and sandbox/sandboxtest shares one sandbox among the tests of a
// package.
package sandbox
