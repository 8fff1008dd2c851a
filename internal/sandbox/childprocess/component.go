// Package childprocess runs the programs of a sandbox as child processes: it starts and kills them, reports the ones
// that exit by themselves, and quotes their logs in errors.
//
// It does not know the purpose of the programs: packages sandbox and realnode have their command lines. On Linux, the
// kernel kills all processes when this one ends.
//
// A Group contains all components of a sandbox: start with its methods Add and Start.
package childprocess

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// dieWithStdin is the environment variable that makes our own programs exit when their standard input is closed; see
// sandbox/controlplane/main.go.
const dieWithStdin = "RUNLEVEL_DIE_WITH_STDIN=1"

// garbageCollection makes the components collect garbage less often than Go does by default. The setting saves an
// eighth of their processor time, for 80 MB of memory. A GOGC in the user's environment has precedence.
const garbageCollection = "GOGC=300"

// A Command is the command line of a component.
type Command struct {
	Name    string // such as kube-apiserver
	Program string // file
	Args    []string
	Env     []string // variables added to the environment of this process
}

// A Component is one program of a sandbox and, while it runs, its process.
type Component struct {
	Command
	Log string // file

	group   *Group
	mu      sync.Mutex
	running *process
}

// A process is one run of a component.
type process struct {
	cmd       *exec.Cmd
	startedAt time.Time
	logOffset int64 // the size of the log before the start
	exited    chan struct{}
	err       error // set before exited is closed
	isKilled  bool  // guarded by Component.mu
}

// start runs the program, and appends its output to its log.
func (c *Component) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running != nil {
		return fmt.Errorf("%s is running already", c.Name)
	}
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", c.Name, err)
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", c.Name, err)
	}
	cmd := exec.Command(c.Program, c.Args...)
	cmd.Args[0] = filepath.Base(c.Program) // several names may link to one program, which acts by its name
	cmd.Env = append(environment(c.group.Home), c.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = ChildAttributes()
	// Nothing is written to the pipe. It is closed after the process has exited, or by the kernel when this process
	// ends.
	if _, err := cmd.StdinPipe(); err != nil {
		return fmt.Errorf("start %s: %w", c.Name, err)
	}
	p := &process{cmd: cmd, startedAt: time.Now(), logOffset: info.Size(), exited: make(chan struct{})}
	started := make(chan error)
	go c.supervise(p, started)
	if err := <-started; err != nil {
		return c.startError(err)
	}
	c.running = p
	return nil
}

// environment returns the user's environment without variables that would reconfigure a component: etcd and kwok take
// settings from variables, and kwok also from a file in the user's home folder.
func environment(home string) []string {
	env := []string{dieWithStdin, garbageCollection, "KWOK_WORKDIR=" + home}
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "ETCD_") && !strings.HasPrefix(variable, "KWOK_") {
			env = append(env, variable)
		}
	}
	return env
}

// supervise starts the process and waits until it exits. Linux regards the thread that forks a child as its parent, and
// kills the child when that thread ends: so supervise keeps the thread until the child has exited.
func (c *Component) supervise(p *process, started chan<- error) {
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
	isKilled := p.isKilled
	c.mu.Unlock()
	close(p.exited)
	if !isKilled {
		c.group.handleExit(c, p)
	}
}

// Kill ends the process as kill -9 does, and returns after it has exited. It does nothing if no process runs.
func (c *Component) Kill() {
	c.mu.Lock()
	p := c.running
	if p != nil {
		p.isKilled = true
		_ = p.cmd.Process.Kill() // fails if the process has just exited
	}
	c.mu.Unlock()
	if p != nil {
		<-p.exited
	}
}

// process returns the running process, or nil.
func (c *Component) process() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// PID returns the process ID, or zero if the component does not run.
func (c *Component) PID() int {
	if p := c.process(); p != nil {
		return p.cmd.Process.Pid
	}
	return 0
}
