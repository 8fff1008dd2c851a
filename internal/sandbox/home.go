package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gofrs/flock"
	"k8s.io/apimachinery/pkg/util/rand"
)

// ErrRunning is returned by Start when a sandbox of that name is running.
var ErrRunning = errors.New("is running already")

// ErrNotRunning is returned by Find when no sandbox of that name is running.
var ErrNotRunning = errors.New("is not running")

// A home is the folder of one sandbox: certificates, data, logs, and a lock that
// its owner holds as long as it lives. The lock, not the folder or a process
// number in it, says whether the sandbox runs: the kernel drops it however the
// owner ends, so what a crash or a reboot left behind is known for what it is.
type home struct {
	dir  string
	lock *flock.Flock
}

// A State is what the owner of a sandbox tells other processes about it.
type State struct {
	Name       string           `json:"name"`
	PID        int              `json:"pid"`
	Version    string           `json:"kubernetesVersion,omitempty"`
	Started    time.Time        `json:"started"`
	Ready      bool             `json:"ready"`
	Server     string           `json:"server,omitempty"`
	Kubeconfig string           `json:"kubeconfig,omitempty"`
	Logs       string           `json:"logs"`
	Components []ComponentState `json:"components,omitempty"`
}

// A ComponentState is one process of a sandbox.
type ComponentState struct {
	Name string `json:"name"`
	PID  int    `json:"pid,omitempty"` // none while it does not run
	Log  string `json:"log"`
}

const (
	lockFile  = "lock"
	stateFile = "state.json"
)

// homes returns the folder of all sandboxes of this user.
func homes() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for the sandbox: %w; set HOME or XDG_CACHE_HOME", err)
	}
	dir := filepath.Join(cache, "runlevel", "sandboxes")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the folder of sandboxes: %w", err)
	}
	return dir, nil
}

// claim makes the home of a new sandbox and removes those that nobody lives in
// any more.
func claim(name string) (*home, error) {
	dir, err := homes()
	if err != nil {
		return nil, err
	}
	if name == "" {
		name = "unnamed-" + rand.String(8)
	}
	h := openHome(dir, name)
	return h, exclusively(dir, func() error {
		sweep(dir)
		if err := os.MkdirAll(h.logs(), 0o700); err != nil {
			return fmt.Errorf("make the folder of sandbox %s: %w", name, err)
		}
		switch free, err := h.lock.TryLock(); {
		case err != nil:
			return fmt.Errorf("lock the folder of sandbox %s: %w", name, err)
		case !free:
			return fmt.Errorf("sandbox %s %w: stop it, or choose another name", name, ErrRunning)
		default:
			return nil
		}
	})
}

func openHome(dir, name string) *home {
	dir = filepath.Join(dir, name)
	return &home{dir: dir, lock: flock.New(filepath.Join(dir, lockFile))}
}

// exclusively runs do while nobody else makes or removes homes in dir, so that
// nobody takes one that is just being made for a forgotten one.
func exclusively(dir string, do func() error) error {
	lock := flock.New(filepath.Join(dir, ".lock"))
	if err := lock.Lock(); err != nil {
		return fmt.Errorf("lock the folder of sandboxes: %w", err)
	}
	return errors.Join(do(), lock.Unlock())
}

// sweep removes the homes whose owners are gone. What can't be removed now is
// left for the next time.
func sweep(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		left := openHome(dir, entry.Name())
		if free, err := left.lock.TryLock(); err == nil && free {
			_ = os.RemoveAll(left.dir)
			_ = left.lock.Unlock()
		}
	}
}

func (h *home) path(elements ...string) string {
	return filepath.Join(append([]string{h.dir}, elements...)...)
}

func (h *home) name() string { return filepath.Base(h.dir) }
func (h *home) logs() string { return h.path("logs") }
func (h *home) pki() string  { return h.path("pki") }

// remove deletes everything and lets go of the name.
func (h *home) remove() error {
	return exclusively(filepath.Dir(h.dir), func() error {
		if err := errors.Join(os.RemoveAll(h.dir), h.lock.Unlock()); err != nil {
			return fmt.Errorf("remove the sandbox's folder: %w", err)
		}
		return nil
	})
}

// publish tells other processes, all at once.
func (h *home) publish(state State) error {
	content, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return err
	}
	draft := h.path(stateFile + ".new")
	if err := os.WriteFile(draft, content, 0o600); err != nil {
		return fmt.Errorf("write the sandbox's state: %w", err)
	}
	return os.Rename(draft, h.path(stateFile))
}

// List returns the sandboxes of this user that are running, by name, after
// removing what those left behind that are not.
func List() ([]State, error) {
	dir, err := homes()
	if err != nil {
		return nil, err
	}
	var states []State
	err = exclusively(dir, func() error {
		sweep(dir)
		files, err := filepath.Glob(filepath.Join(dir, "*", stateFile))
		for _, file := range files {
			if state, err := readState(file); err == nil {
				states = append(states, state)
			}
		}
		return err
	})
	return states, err
}

// Find returns the running sandbox of that name, or ErrNotRunning.
func Find(name string) (State, error) {
	states, err := List()
	if err != nil {
		return State{}, err
	}
	i := slices.IndexFunc(states, func(s State) bool { return s.Name == name })
	if i < 0 {
		return State{}, fmt.Errorf("sandbox %s %w", name, ErrNotRunning)
	}
	return states[i], nil
}

func readState(file string) (State, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return State{}, err
	}
	var state State
	return state, json.Unmarshal(content, &state)
}
