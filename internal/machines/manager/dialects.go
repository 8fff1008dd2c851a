package manager

import "fmt"

// A MachineDialect is an API that has Machines.
type MachineDialect string

// The dialects. Cluster API's is not the default: if its own core controller runs, both would write the same Machines.
const (
	OpenShift  MachineDialect = "openshift"   // machine.openshift.io
	ClusterAPI MachineDialect = "cluster-api" // cluster.x-k8s.io
)

// checkDialects returns an error if a dialect is unknown.
func checkDialects(dialects []MachineDialect) error {
	for _, dialect := range dialects {
		if dialect != OpenShift && dialect != ClusterAPI {
			return fmt.Errorf("there is no dialect %q: write %s, %s or both, with a comma between them", dialect, OpenShift, ClusterAPI)
		}
	}
	return nil
}
