package manager_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/program/leader"
)

// servedCluster is the variable with the kubeconfig of the cluster that a process of the controllers serves.
const servedCluster = "RUNLEVEL_TEST_CONTROLLERS_OF"

// TestControllerProcess is the process of the controllers that TestCrowd and TestSoak run, and no test.
func TestControllerProcess(t *testing.T) {
	if os.Getenv(servedCluster) == "" {
		t.Skip("TestCrowd and TestSoak run it")
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	go func() { // it does not outlive the test that started it
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv(servedCluster))
	if err == nil {
		config = rest.CopyConfig(config)
		config.UserAgent = controllerAgent
		err = manager.Run(ctx, config, manager.Options{
			Options:  leader.Options{Namespace: metav1.NamespaceDefault},
			Dialects: []manager.Dialect{manager.OpenShift, manager.ClusterAPI},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A controllerProcess is the controllers in a process of their own. When it ends it is run again, as a kubelet does.
type controllerProcess struct {
	*scene
	log   string
	ended chan struct{} // closed when no further process is run

	mu      sync.Mutex
	process *os.Process // nil while there is none
}

// runControllers runs the controllers until the test ends.
func (s *scene) runControllers() *controllerProcess {
	s.t.Helper()
	c := &controllerProcess{scene: s, log: filepath.Join(s.t.TempDir(), "controllers.log"), ended: make(chan struct{})}
	log, err := os.Create(c.log)
	s.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(c.ended)
		for ctx.Err() == nil {
			c.run(ctx, log)
		}
	}()
	s.t.Cleanup(func() {
		cancel()
		<-c.ended
		_ = log.Close()
		c.reportLog()
	})
	return c
}

// run runs the controllers once.
func (c *controllerProcess) run(ctx context.Context, log io.Writer) {
	command := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestControllerProcess$", "-test.timeout=0")
	command.Env = append(os.Environ(), servedCluster+"="+c.control.Kubeconfig)
	command.Stdout, command.Stderr = log, log
	if _, err := command.StdinPipe(); err != nil {
		return
	}
	c.mu.Lock()
	err := command.Start()
	if err == nil {
		c.process = command.Process
	}
	c.mu.Unlock()
	if err == nil {
		_ = command.Wait()
	}
}

// reportLog logs the output of the controllers if the test has failed, and reports an error if they did not shut down
// in time.
func (c *controllerProcess) reportLog() {
	text, _ := os.ReadFile(c.log)
	if strings.Contains(string(text), "failed waiting for all runnables") {
		c.t.Error("the controllers did not end in their time of grace")
	}
	if c.t.Failed() {
		c.t.Logf("the controllers:\n%s", text[max(0, len(text)-20_000):])
	}
}

// signal sends a signal to the controllers.
func (c *controllerProcess) signal(signal os.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil {
		_ = c.process.Signal(signal) // it may have ended just now
	}
}

// end stops the controllers, which are then started again.
func (c *controllerProcess) end() { c.signal(syscall.SIGTERM) }

// kill ends the controllers at once. The next ones need not wait until the Lease of the dead has run out.
func (c *controllerProcess) kill() {
	c.t.Helper()
	c.signal(os.Kill)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceDefault,
		Name:      "machine-controller",
	}}
	c.must(client.IgnoreNotFound(c.Delete(c.t.Context(), lease)))
}
