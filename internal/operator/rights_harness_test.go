package operator_test

import (
	"github.com/runlevel/runlevel/install"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// onTrouble are rights that are needed only when something goes wrong: to say why pods are not ready and services do
// not answer, to make definitions again, and to read the files of a release when its registry is down. Settings of
// OpenShift are read only where their kinds are served.
var onTrouble = []string{"apiservers", "featuregates", "infrastructures", "proxies", "events", "nodes",
	"persistentvolumeclaims", "pods", "pods/log", "services", "deployments", "replicasets", "endpointslices",
	"storageclasses", "customresourcedefinitions", "secrets"}

// checkRights fails the test unless the operator has asked for each thing that its own roles allow, beside what it
// takes to apply a release.
func (s *stage) checkRights() {
	s.t.Helper()
	for _, name := range sandboxtest.UnusedRights(s.t, s.sandbox, install.Objects(), "runlevel-operator",
		onTrouble...) {
		s.t.Errorf("the operator has the right to %s, and has never used it", name)
	}
}
