package operator_test

import (
	"github.com/runlevel/runlevel/install"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// onTrouble are rights that the operator needs only after a failure: to diagnose pods and services, to recreate
// definitions, and to read the copy of a release when its registry is down. It reads settings of OpenShift only where
// their kinds are served.
var onTrouble = []string{"apiservers", "featuregates", "infrastructures", "proxies", "events", "nodes",
	"persistentvolumeclaims", "pods", "pods/log", "services", "deployments", "replicasets", "endpointslices",
	"storageclasses", "customresourcedefinitions", "secrets"}

// checkRights fails the test if the operator has not used a right of its own roles, which do not include the rights
// to apply a release.
func (s *stage) checkRights() {
	s.t.Helper()
	for _, name := range sandboxtest.UnusedRights(s.t, s.sandbox, install.Objects(), "runlevel-operator",
		onTrouble...) {
		s.t.Errorf("the operator has the right to %s, and has never used it", name)
	}
}
