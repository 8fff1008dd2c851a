// Command machines measures the machine controller: what a fleet of machines costs while it is made, at rest and while
// all of it is deleted at once, how long a machine stays once its last hook was removed, and what a rollout costs, in place and
// by replacement.
//
// The controller runs as it is shipped, as a process with the rights of its service account, on a control plane of the
// sandbox. Its requests are counted in the audit log. Beside it, in the same run, are a floor, which is a bare loop that
// leaves the same objects behind, and kubectl's drain. docs/performance.md says what is compared. It is no test, and
// nothing here judges a figure. Start with run; fleet.go has the machines.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(logr.Discard())
	if err := run(ctx, os.Args[1:], os.Stdout); errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	} else if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "machines:", err)
		os.Exit(1)
	}
}

// options are what was asked for.
type options struct {
	kwok, external int // how many machines of each infrastructure
	clusterAPI     int // how many machines of Cluster API, with simulated nodes
	rollout        int // how many machines of a MachineDeployment are rolled out
	drained, pods  int // how many nodes are drained, with how many pods each
	hooked         int // how many machines have a hook
	atOnce         int // how many machines the controller, the floor and kubectl work on at once
	rest           time.Duration
	controller     string
	json           bool
}

func parse(arguments []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("machines", flag.ContinueOnError)
	flags.IntVar(&o.kwok, "kwok", 1000, "how many machines with simulated nodes; 0 for none, and no drains")
	flags.IntVar(&o.external, "external", 5000, "how many machines with external infrastructure, and nodes without a kubelet; 0 for none")
	flags.IntVar(&o.clusterAPI, "cluster-api", 1000, "how many machines of Cluster API, with simulated nodes; 0 for none")
	flags.IntVar(&o.rollout, "rollout", 1000, "how many machines of a MachineDeployment are rolled out, in place and then by replacement; 0 for none")
	flags.IntVar(&o.drained, "drained", 100, "how many nodes are drained")
	flags.IntVar(&o.pods, "pods", 10, "how many pods each of those has")
	flags.IntVar(&o.hooked, "hooked", 50, "how many machines have a hook, half of which are deleted one after the other, and half in the crowd")
	flags.IntVar(&o.atOnce, "at-once", 20, "how many machines are worked on at once")
	flags.DurationVar(&o.rest, "rest", 2*time.Minute, "how long the controller is watched at rest")
	flags.StringVar(&o.controller, "controller", "../bin/runlevel-cluster", "the machine controller")
	output := flags.String("o", "text", "how to print: text or json")
	quick := flags.Bool("quick", false, "few machines, to see that it runs")
	if err := flags.Parse(arguments); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q: there are flags only; see --help", flags.Arg(0))
	}
	if *quick {
		o.rollout = 100
		o.kwok, o.external, o.clusterAPI, o.drained, o.pods, o.hooked, o.rest = 40, 40, 40, 5, 3, 10, 10*time.Second
	}
	return o, errors.Join(o.check(), o.setOutput(*output))
}

func (o *options) check() error {
	if smallest := min(orMany(o.kwok), orMany(o.external), orMany(o.clusterAPI)); o.hooked < 2 || o.hooked > smallest {
		return fmt.Errorf("--hooked %d: use 2 or more, and no more than there are machines", o.hooked)
	}
	if o.rollout != 0 && o.rollout < 10 {
		return fmt.Errorf("--rollout %d: use 10 or more, of which a tenth may be unavailable, or 0", o.rollout)
	}
	if o.drained < 1 || o.pods < 1 || o.atOnce < 1 {
		return errors.New("--drained, --pods and --at-once: use 1 or more")
	}
	return nil
}

// orMany has none count as many.
func orMany(machines int) int {
	if machines == 0 {
		return 1 << 30
	}
	return machines
}

// setOutput is told what -o says.
func (o *options) setOutput(name string) error {
	switch name {
	case "text", "json":
		o.json = name == "json"
		return nil
	default:
		return fmt.Errorf("-o %s: use text or json", name)
	}
}

func run(ctx context.Context, arguments []string, to io.Writer) error {
	o, err := parse(arguments)
	if err != nil {
		return err
	}
	if _, err := os.Stat(o.controller); err != nil {
		return fmt.Errorf("%s is not there: \"make bench\" builds it", o.controller)
	}
	all := &results{progress: os.Stderr}
	for _, measure := range []func(context.Context, options, *results) error{measureKwok, measureExternal, measureClusterAPI, measureRollouts} {
		if err = measure(ctx, o, all); err != nil {
			break
		}
	}
	if len(all.Spans) == 0 {
		return err
	}
	print := all.printText
	if o.json {
		print = all.printJSON
	}
	return errors.Join(err, print(to))
}

// measureKwok measures machines with simulated nodes, and then those that do the same by other means.
func measureKwok(ctx context.Context, o options, all *results) error {
	if o.kwok == 0 {
		return nil
	}
	return withController(ctx, o, 1, openshift{}, func(s *stand) error {
		if err := newFleet(s, openshift{}, "KwokMachine", o.kwok).measure(ctx, o, all); err != nil {
			return err
		}
		if err := measureDrains(ctx, s, o, all); err != nil {
			return err
		}
		if err := s.stopController(); err != nil {
			return err
		}
		if err := measureKubectl(ctx, s, o, all); err != nil {
			return err
		}
		return measureFloor(ctx, s, o, all)
	})
}

// measureExternal measures machines with external infrastructure. Without kwok, nothing sends heartbeats of nodes.
func measureExternal(ctx context.Context, o options, all *results) error {
	if o.external == 0 {
		return nil
	}
	return withController(ctx, o, -1, openshift{}, func(s *stand) error {
		return newFleet(s, openshift{}, "ExternalMachine", o.external).measure(ctx, o, all)
	})
}

// measureClusterAPI measures machines of Cluster API with simulated nodes.
func measureClusterAPI(ctx context.Context, o options, all *results) error {
	if o.clusterAPI == 0 {
		return nil
	}
	return withController(ctx, o, 1, clusterAPI{}, func(s *stand) error {
		return newFleet(s, clusterAPI{}, "KwokMachine", o.clusterAPI).measure(ctx, o, all)
	})
}

// withController measures something on a stand of its own, while the controller runs there.
func withController(ctx context.Context, o options, nodes int, of dialect, measure func(*stand) error) (err error) {
	s, err := newStand(ctx, o, nodes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.startController(ctx, of); err != nil {
		return err
	}
	return measure(s)
}
