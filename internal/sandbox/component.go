package sandbox

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// The components, by the names of their programs.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kwok              = "kwok"
)

// Components lists the names of all components, in the order in which they
// depend on each other.
func Components() []string {
	return []string{Etcd, APIServer, ControllerManager, Scheduler, Kwok}
}

// dieWithStdin is the environment variable that makes a program of ours end
// when its standard input does; see sandbox/main.go.
const dieWithStdin = "RUNLEVEL_DIE_WITH_STDIN=1"

// A component is one program of the control plane and, while it runs, its
// process.
type component struct {
	name    string
	program string
	args    []string
	log     string
	forker  *forker
	// died is told of every end that nobody asked for.
	died func(*component)

	mu      sync.Mutex
	running *process
}

// A process is one run of a component.
type process struct {
	cmd   *exec.Cmd
	asked bool // somebody wants it to end; guarded by component.mu
	ended chan struct{}
	err   error // how it ended; read after ended is closed
}

// start runs the program, appending to its log.
func (c *component) start() error {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", c.name, err)
	}
	defer log.Close()

	cmd := exec.Command(c.program, c.args...)
	cmd.Args[0] = c.name // the program may be a link to one that serves all
	cmd.Env = append(os.Environ(), dieWithStdin)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running != nil {
		return fmt.Errorf("%s is running already", c.name)
	}
	if err := c.forker.do(cmd.Start); err != nil {
		return startError(c, err)
	}
	c.running = &process{cmd: cmd, ended: make(chan struct{})}
	go c.await(c.running, stdin)
	return nil
}

// await reaps the process. It keeps the other end of its standard input open
// until then.
func (c *component) await(p *process, stdin io.Closer) {
	p.err = p.cmd.Wait()
	_ = stdin.Close()
	c.mu.Lock()
	c.running = nil
	asked := p.asked
	c.mu.Unlock()
	close(p.ended)
	if !asked {
		c.died(c)
	}
}

// kill ends the process at once, as kill -9 does, and returns when it is gone.
// To kill what does not run is no error.
func (c *component) kill() {
	if p := c.signal(os.Kill); p != nil {
		<-p.ended
	}
}

// terminate asks the process to end and waits until it has.
func (c *component) terminate(ctx context.Context) error {
	p := c.signal(syscall.SIGTERM)
	if p == nil {
		return nil
	}
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s has not ended yet: %w", c.name, context.Cause(ctx))
	}
}

// signal sends a signal that means the end, and returns whom it was sent to.
func (c *component) signal(sig os.Signal) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running != nil {
		c.running.asked = true
		_ = c.running.cmd.Process.Signal(sig) // it may just have ended
	}
	return c.running
}

// whileRunning returns a context that ends, with the reason, when the process
// that runs now does.
func (c *component) whileRunning(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	p := c.running
	c.mu.Unlock()
	if p == nil {
		cancel(c.deathError())
		return ctx, func() {}
	}
	go func() {
		select {
		case <-p.ended:
			cancel(c.deathError())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// pid is zero for a component that does not run.
func (c *component) pid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		return 0
	}
	return c.running.cmd.Process.Pid
}
