package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// The components, by the names of their programs.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kwok              = "kwok"
)

// dieWithStdin is the environment variable that makes a program of ours end
// when its standard input does; see sandbox/controlplane/main.go.
const dieWithStdin = "RUNLEVEL_DIE_WITH_STDIN=1"

// A component is one program of the control plane and, while it runs, its
// process.
type component struct {
	name    string
	program string
	args    []string
	env     []string // beside that of this process
	home    string
	log     string
	// died is called when a process ends that was not killed by kill.
	died func(*component, *process)

	mu      sync.Mutex
	running *process
}

// A process is one run of a component.
type process struct {
	cmd      *exec.Cmd
	started  time.Time
	logged   int64 // the size of the log before the start
	ended    chan struct{}
	err      error // how it ended; read after ended is closed
	isKilled bool  // kill was called; guarded by component.mu
}

// start runs the program, appending to its log.
func (c *component) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running != nil {
		return fmt.Errorf("%s is running already", c.name)
	}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", c.name, err)
	}
	defer log.Close()
	before, err := log.Stat()
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", c.name, err)
	}
	cmd := exec.Command(c.program, c.args...)
	cmd.Args[0] = c.name // the program may be a link to one that serves all
	cmd.Env = append(environment(c.home), c.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = ChildAttributes()
	// Nothing is written to it. It is closed when the process is reaped, or by the
	// kernel when we die.
	if _, err := cmd.StdinPipe(); err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	p := &process{cmd: cmd, started: time.Now(), logged: before.Size(), ended: make(chan struct{})}
	started := make(chan error)
	go c.supervise(p, started)
	if err := <-started; err != nil {
		return startError(c, err)
	}
	c.running = p
	return nil
}

// garbage has the components collect garbage less often than Go does by default. It saves an eighth of their processor
// time, for 80 MB of memory. A GOGC in the user's environment overrides it.
const garbage = "GOGC=300"

// environment returns the user's environment without variables that would reconfigure a
// component: etcd and kwok take settings from variables, kwok from a file in the
// user's home too.
func environment(home string) []string {
	env := []string{dieWithStdin, garbage, "KWOK_WORKDIR=" + home}
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "ETCD_") && !strings.HasPrefix(variable, "KWOK_") {
			env = append(env, variable)
		}
	}
	return env
}

// supervise starts the process, and reaps it when it has ended. Linux considers the thread that forks a child its
// parent, and kills the child when that thread ends: so the thread is kept until the child has ended.
func (c *component) supervise(p *process, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	c.mu.Lock()
	c.running = nil
	isExpected := p.isKilled
	c.mu.Unlock()
	close(p.ended)
	if !isExpected {
		c.died(c, p)
	}
}

// kill ends the process at once, as kill -9 does, and returns when it has ended.
// It is no error if no process runs.
func (c *component) kill() {
	c.mu.Lock()
	p := c.running
	if p != nil {
		p.isKilled = true
		_ = p.cmd.Process.Kill() // it may just have ended
	}
	c.mu.Unlock()
	if p != nil {
		<-p.ended
	}
}

// current returns the process that runs now, or nil.
func (c *component) current() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// pid returns the process ID; zero if the component does not run.
func (c *component) pid() int {
	if p := c.current(); p != nil {
		return p.cmd.Process.Pid
	}
	return 0
}
