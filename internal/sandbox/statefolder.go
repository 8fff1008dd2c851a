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

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
	"github.com/runlevel/runlevel/internal/sandbox/realnode"
)

// ErrRunning is the error of Start if a sandbox of that name runs already.
var ErrRunning = errors.New("is running already")

// ErrNotRunning is the error of Find if no sandbox of that name runs.
var ErrNotRunning = errors.New("is not running")

// A stateFolder is the folder of one sandbox: certificates, data, logs, and a lock that its owner holds as long as it
// runs. The sandbox runs if the lock is held, whatever process ID the folder has: the kernel releases the lock when the
// owner ends, so that the folders of crashed owners are recognized as stale.
type stateFolder struct {
	dir  string
	lock *flock.Flock
}

// A Status is the state of a sandbox that its owner publishes for other processes.
type Status struct {
	Name       string            `json:"name"`
	PID        int               `json:"pid"`
	Started    time.Time         `json:"started"`
	Ready      bool              `json:"ready"`
	Server     string            `json:"server,omitempty"`
	Kubeconfig string            `json:"kubeconfig,omitempty"`
	Registry   string            `json:"registry,omitempty"` // images for real nodes
	Logs       string            `json:"logs"`
	Components []ComponentStatus `json:"components,omitempty"`
	// Failure is the error of a component that exited by itself. A sandbox with a failure does not run; its logs stay
	// for an hour, and until another sandbox starts.
	Failure string `json:"failure,omitempty"`
}

// A ComponentStatus is one process of a sandbox.
type ComponentStatus struct {
	Name string `json:"name"`
	PID  int    `json:"pid,omitempty"` // 0 if the component does not run
	Log  string `json:"log"`
}

const (
	lockFile  = "lock"
	stateFile = "state.json"
)

// stateFolders returns the folder of all sandboxes of this user.
func stateFolders() (string, error) {
	dir, err := binaries.CacheDir("sandboxes")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", binaries.Explain("create the folder of sandboxes", err)
	}
	return dir, nil
}

// claim creates the folder of a new sandbox, and removes the folders whose owners have exited.
func claim(name string) (*stateFolder, error) {
	dir, err := stateFolders()
	if err != nil {
		return nil, err
	}
	if name == "" {
		name = "unnamed-" + rand.String(8)
	}
	h := openStateFolder(dir, name)
	return h, withLock(dir, func() error {
		removeStale(dir, time.Now().Add(-failureRetention))
		if err := os.MkdirAll(h.dir, 0o700); err != nil {
			return binaries.Explain("create the folder of sandbox "+name, err)
		}
		switch free, err := h.lock.TryLock(); {
		case err != nil:
			return binaries.Explain("lock the folder of sandbox "+name, err)
		case !free:
			return fmt.Errorf("sandbox %s %w: stop it, or choose another name", name, ErrRunning)
		}
		err := h.publish(Status{
			Name: name, PID: os.Getpid(), Started: time.Now(), Kubeconfig: h.path("kubeconfig"), Logs: h.logs(),
		})
		if err != nil {
			return errors.Join(err, os.RemoveAll(h.dir), h.lock.Unlock())
		}
		return nil
	})
}

func openStateFolder(dir, name string) *stateFolder {
	dir = filepath.Join(dir, name)
	return &stateFolder{dir: dir, lock: flock.New(filepath.Join(dir, lockFile))}
}

// withLock calls a function while no other process creates or removes folders in dir, so that none removes a folder
// during its creation.
func withLock(dir string, do func() error) error {
	lock := flock.New(filepath.Join(dir, ".lock"))
	if err := lock.Lock(); err != nil {
		return binaries.Explain("lock the folder of sandboxes", err)
	}
	return errors.Join(do(), lock.Unlock())
}

// withLock calls withLock for the folder of all sandboxes.
func (s *stateFolder) withLock(do func() error) error { return withLock(filepath.Dir(s.dir), do) }

// failureRetention is the minimum time for which the logs of a failed sandbox stay. Other sandboxes that start must not
// remove them before a user has read them.
const failureRetention = time.Hour

// removeStale removes the folders whose owners have exited, those of failed sandboxes only if they failed before
// failedBefore, and returns the status of the others. Folders that can't be removed stay until the next call.
func removeStale(dir string, failedBefore time.Time) []Status {
	var states []Status
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		h := openStateFolder(dir, entry.Name())
		state, err := h.read()
		free, lockErr := h.lock.TryLock()
		switch {
		case lockErr == nil && free && (state.Failure == "" || state.Started.Before(failedBefore)):
			if h.removeNodes() == nil {
				_ = os.RemoveAll(h.dir)
			}
		case err == nil:
			states = append(states, state)
		}
		_ = h.lock.Close()
	}
	return states
}

func (s *stateFolder) path(elements ...string) string {
	return filepath.Join(append([]string{s.dir}, elements...)...)
}

func (s *stateFolder) name() string { return filepath.Base(s.dir) }
func (s *stateFolder) logs() string { return s.path("logs") }
func (s *stateFolder) pki() string  { return s.path("pki") }

// clear prepares the folder for an attempt to start.
func (s *stateFolder) clear() error {
	if err := s.removeNodes(); err != nil {
		return err
	}
	for _, dir := range []string{s.path("etcd"), s.pki(), s.logs()} {
		if err := os.RemoveAll(dir); err != nil {
			return binaries.Explain("clear the sandbox's folder", err)
		}
	}
	for _, dir := range []string{s.pki(), s.logs()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return binaries.Explain("create the sandbox's folders", err)
		}
	}
	return nil
}

// remove deletes everything and releases the name.
func (s *stateFolder) remove() error {
	return s.withLock(func() error {
		if err := s.removeNodes(); err != nil {
			return errors.Join(fmt.Errorf("remove the sandbox's nodes: %w", err), s.lock.Unlock())
		}
		if err := errors.Join(os.RemoveAll(s.dir), s.lock.Unlock()); err != nil {
			return fmt.Errorf("remove the sandbox's folder: %w", err)
		}
		return nil
	})
}

// removeExceptLogs releases the name after a failure, and removes everything except for the logs that the error refers
// to.
func (s *stateFolder) removeExceptLogs(failure error) error {
	return s.withLock(func() error {
		state := Status{Name: s.name(), Started: time.Now(), Logs: s.logs(), Failure: failure.Error()}
		return errors.Join(s.removeNodes(), os.RemoveAll(s.path("etcd")), os.RemoveAll(s.pki()), s.publish(state),
			s.lock.Unlock())
	})
}

// removeNodes removes real nodes and their files. If the nodes can't be removed, volumes of pods may still be mounted,
// so the files stay.
func (s *stateFolder) removeNodes() error {
	if err := realnode.Remove(s.nodes()); err != nil {
		return err
	}
	return os.RemoveAll(s.nodes())
}

func (s *stateFolder) nodes() string { return s.path("nodes") }

// publish replaces the status file atomically.
func (s *stateFolder) publish(state Status) error {
	content, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return err
	}
	draft := s.path(stateFile + ".new")
	err = os.WriteFile(draft, content, 0o600)
	if err == nil {
		err = os.Rename(draft, s.path(stateFile))
	}
	if err != nil {
		return binaries.Explain("write the sandbox's state", err)
	}
	return nil
}

func (s *stateFolder) read() (Status, error) {
	content, err := os.ReadFile(s.path(stateFile))
	if err != nil {
		return Status{}, err
	}
	var state Status
	return state, json.Unmarshal(content, &state)
}

// List returns the sandboxes of this user, by name: those that run, and those that failed in the last hour. It removes
// all stale folders.
func List() ([]Status, error) {
	dir, err := stateFolders()
	if err != nil {
		return nil, err
	}
	var states []Status
	err = withLock(dir, func() error {
		states = removeStale(dir, time.Time{})
		return nil
	})
	return states, err
}

// Find returns the running sandbox of that name, or ErrNotRunning.
func Find(name string) (Status, error) {
	states, err := List()
	if err != nil {
		return Status{}, err
	}
	i := slices.IndexFunc(states, func(s Status) bool { return s.Name == name && s.Failure == "" })
	if i < 0 {
		return Status{}, fmt.Errorf("sandbox %s %w", name, ErrNotRunning)
	}
	return states[i], nil
}
