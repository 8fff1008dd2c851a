package manager_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/etcdguard/manager"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// A guardProcess is the program of the guard. It is started again whenever it ends, as by a kubelet.
type guardProcess struct {
	mu      sync.Mutex
	command *exec.Cmd
	ended   chan struct{} // closed when the command has ended
	kills   int
}

// startGuardProcess builds the program, and runs it until the test ends. It connects to the API server and etcd without
// the gate.
func (s *scene) startGuardProcess(t *testing.T, o manager.Options) *guardProcess {
	t.Helper()
	folder := t.TempDir()
	program, kubeconfig := sandboxtest.Program(t, "runlevel-cluster"), filepath.Join(folder, "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["gate"] = &clientcmdapi.Cluster{Server: s.api.Host}
	config.Contexts["gate"] = &clientcmdapi.Context{Cluster: "gate"}
	config.CurrentContext = "gate"
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("the guard's log: %s", text)
		}
	})
	g := &guardProcess{}
	s.run(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			command := exec.CommandContext(ctx, program, "etcd-quorum-guard", "--kubeconfig", kubeconfig, "--namespace",
				o.Namespace,
				"--unhealthy-after", o.Etcd.Patience.String(), "--etcd-endpoints", strings.Join(o.Endpoints, ","),
				"--etcd-ca-file", s.options.CAFile, "--etcd-cert-file", s.options.CertFile, "--etcd-key-file",
				s.options.KeyFile)
			command.Stdout, command.Stderr = log, log
			if err := g.live(command); err != nil {
				return err
			}
		}
		return nil
	})
	return g
}

// live runs a process until it ends.
func (g *guardProcess) live(command *exec.Cmd) error {
	g.mu.Lock()
	g.command, g.ended = command, make(chan struct{})
	err := command.Start()
	ended := g.ended
	g.mu.Unlock()
	if err == nil {
		_ = command.Wait() // it is killed, or has lost its Lease while it had no processor
	}
	close(ended)
	return err
}

// kill kills the process that runs now, as kill -9 does, and returns when it is dead.
func (g *guardProcess) kill() {
	g.mu.Lock()
	command, ended := g.command, g.ended
	g.kills++
	g.mu.Unlock()
	_ = command.Process.Kill()
	<-ended
}

// TestControlPlaneIsReplacedUnderLoad replaces all three members of etcd, one after the other, while a client writes to
// it. The test kills the guard at its writes: in the first replacement before they arrive, in the second after that,
// and in the third both before and after if the test is thorough.
func TestControlPlaneIsReplacedUnderLoad(t *testing.T) {
	s := newScene(t)
	guard := s.startGuardProcess(t, s.guardOptions())
	s.awaitHooks(3)
	load := s.startLoad(t)
	left := []int{1, 2, 3}
	for round := range 3 {
		s.killAtWrites(guard, round == 0 || sandboxtest.IsThorough(), round == 1 || sandboxtest.IsThorough())
		from := len(s.gate.matching(""))
		going := s.pick(t, left, round == 1)
		left = slices.DeleteFunc(left, func(number int) bool { return number == going })
		s.replace(t, going, 4+round)
		s.checkWrites(t, s.gate.matching("")[from:], going)
	}
	s.gate.set(nil, nil)
	s.awaitMembers("4 5 6")
	load.check(t)
	t.Logf("the guard was killed %d times", guard.kills)
	if guard.kills < 8 {
		t.Errorf("the guard was killed %d times", guard.kills)
	}
}

// deleteLease deletes the Lease of a dead process, so that the next one need not wait until it expires.
func (s *scene) deleteLease(namespace, name string) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := client.IgnoreNotFound(s.client.Delete(s.Context(), lease)); err != nil {
		s.Error(err)
	}
}

// pick returns one of the remaining machines. If isToLead is true, it is the one whose member leads.
func (s *scene) pick(t *testing.T, left []int, isToLead bool) int {
	t.Helper()
	for _, number := range left {
		status, err := s.etcdCluster.client.Status(t.Context(), s.ClientURL(number))
		if err != nil {
			t.Fatal(err)
		}
		if isToLead && status.Leader == status.Header.MemberId {
			return number
		}
	}
	return left[0]
}

// replace deletes a machine, and waits until its replacement has taken its place.
func (s *scene) replace(t *testing.T, going, coming int) {
	t.Helper()
	s.delete(going)
	s.eventually("there are four machines", func(context.Context) error {
		if s.machine(coming) == "" {
			return fmt.Errorf("machine %d is missing", coming)
		}
		return nil
	})
	s.awaitMachineGone(going)
	s.awaitHooks(3)
}

// killAtWrites kills the guard at the first time of each write: before the write arrives, or after.
func (s *scene) killAtWrites(guard *guardProcess, before, after bool) {
	once := func(isMeant bool) func(string) bool {
		var mu sync.Mutex
		seen := map[string]bool{}
		return func(write string) bool {
			mu.Lock()
			defer mu.Unlock()
			if !isMeant || seen[write] {
				return false
			}
			seen[write] = true
			guard.kill()
			s.deleteLease(s.namespace, "etcd-quorum-guard")
			return true
		}
	}
	s.gate.set(once(before), once(after))
}

// checkWrites checks that each write has arrived once, and in order, however often the guard was killed. A leader hands
// over before it is removed.
func (s *scene) checkWrites(t *testing.T, writes []string, going int) {
	t.Helper()
	isOfOrder := func(write string) bool { return !strings.HasPrefix(write, "add hook ") && write != "move leader" }
	got := slices.DeleteFunc(slices.Clone(writes), func(write string) bool { return !isOfOrder(write) })
	want := []string{"promote", "remove", "remove hook " + s.machine(going)}
	if !slices.Equal(got, want) {
		t.Errorf("the guard wrote %q, want %q", writes, want)
	}
	t.Logf("machine %d: %q at %s", going, writes, time.Now().Format(time.TimeOnly))
}
