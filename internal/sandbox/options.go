package sandbox

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/sandbox/realnode"
)

// NoNodes as Options.Nodes starts a control plane without nodes, kube-scheduler and kwok.
const NoNodes = -1

// Options configure a control plane. The zero value is a complete one with one node and an unused name.
type Options struct {
	// Name lets other processes find the sandbox. It must be unique among running sandboxes. Empty chooses an unused
	// one.
	Name string
	// Nodes is the number of simulated nodes: zero means one, NoNodes none.
	Nodes int
	// RealNodes is the number of nodes that run containers, instead of simulated ones: see package realnode.
	RealNodes int
	// Images are imported into real nodes: archives, OCI image layouts and folders of files, as PATH or PATH=NAME.
	Images []string
	// Offline keeps real nodes from pulling images from beyond this machine.
	Offline bool
	// Kubernetes is the version that the control plane emulates, as in 1.34, if its programs can: up to three minor
	// versions before their own. Empty means their own.
	Kubernetes string
	// Controllers are the controllers that run, in the syntax of kube-controller-manager's --controllers. Empty means
	// its default.
	Controllers []string
	// NodeGrace is the time without heartbeats until a node is not ready. Zero means the default of
	// kube-controller-manager, 50 seconds; kwok sends a heartbeat every 10.
	NodeGrace time.Duration
	// FeatureGates are set on the API server, the controller manager and the scheduler.
	FeatureGates map[string]bool
	// AuditPolicy is an audit.k8s.io/v1 Policy in YAML. With one, the API server writes its audit log to audit.log
	// beside the other logs.
	AuditPolicy string
	// CRDs are files and folders of CustomResourceDefinitions. They are established when Start returns.
	CRDs []string
	// Progress receives lines about the build of the programs. Nil discards them.
	Progress io.Writer
}

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

func (o Options) validate() error {
	if o.Name != "" && !validName.MatchString(o.Name) {
		return fmt.Errorf("sandbox name %q: use up to 32 lower-case letters, digits and dashes", o.Name)
	}
	if o.Nodes < NoNodes {
		return fmt.Errorf("%d nodes: use 0 for one node, a positive number for more, NoNodes for none", o.Nodes)
	}
	if o.RealNodes < 0 || o.RealNodes > realnode.MaxNodes {
		return fmt.Errorf("%d real nodes: use 1 to %d, or 0 for simulated ones", o.RealNodes, realnode.MaxNodes)
	}
	if (len(o.Images) > 0 || o.Offline) && o.RealNodes == 0 {
		return errors.New("images and --offline are for real nodes: simulated ones run no container")
	}
	for _, image := range o.Images {
		if err := realnode.CheckImage(image); err != nil {
			return err
		}
	}
	if o.RealNodes > 0 && o.Nodes != 0 {
		return errors.New("nodes are either real or simulated: give the number of one kind only")
	}
	for _, name := range o.Controllers {
		// kube-controller-manager also accepts short aliases, which runs would not recognize.
		if name != "*" && !strings.HasSuffix(name, "-controller") {
			return fmt.Errorf("controller %q: use the whole name, which ends in -controller, with a dash before it "+
				"to switch it off", name)
		}
	}
	return nil
}

// components lists the components that the options require.
func (o Options) components() []string {
	return slices.DeleteFunc(Components(), func(name string) bool {
		return o.nodes() == 0 && name == Scheduler || (o.nodes() == 0 || o.RealNodes > 0) && name == Kwok
	})
}

func (o Options) nodes() int {
	if o.RealNodes > 0 {
		return o.RealNodes
	}
	switch o.Nodes {
	case 0:
		return 1
	case NoNodes:
		return 0
	default:
		return o.Nodes
	}
}

// runs reports whether the controller of that name will run.
func (o Options) runs(controller string) bool {
	switch {
	case len(o.Controllers) == 0:
		return true
	case slices.Contains(o.Controllers, "-"+controller):
		return false
	default:
		return slices.Contains(o.Controllers, controller) || slices.Contains(o.Controllers, "*")
	}
}

// gates formats the feature gates as the value of a flag, sorted.
func (o Options) gates() string {
	var gates []string
	for name, isEnabled := range o.FeatureGates {
		gates = append(gates, fmt.Sprintf("%s=%t", name, isEnabled))
	}
	slices.Sort(gates)
	return strings.Join(gates, ",")
}
